/** The names of all chains in the text of `iptables-save`. Pure. */
export function chainsOf(saved: string): string[] {
  const names: string[] = [];
  for (let at = saved.indexOf("\n:"); at >= 0; at = saved.indexOf("\n:", at + 1)) {
    const end = saved.indexOf(" ", at);
    if (end > at) names.push(saved.slice(at + 2, end));
  }
  return names;
}
