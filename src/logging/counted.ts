/** `no endpoint`, `1 endpoint`, `2 endpoints`. */
export function counted(count: number, noun: string): string {
  return `${count === 0 ? "no" : count} ${noun}${count > 1 ? "s" : ""}`;
}
