/**
 * How much each chain is used: the rules in it and the rules that go to it. The kernel counts this for every chain of
 * nf_tables, so that a flushed chain or a foreign rule shows without any rule being read. Pure.
 */

const APPEND = "-A ";

/** The same from the text of `iptables-save`. */
export function chainUsesOf(saved: string): Map<string, number> {
  const uses = new Map<string, number>();
  const add = (chain: string, by: number): void => void uses.set(chain, (uses.get(chain) ?? 0) + by);
  const targets: string[] = [];
  for (let start = 0; start < saved.length; ) {
    const newline = saved.indexOf("\n", start);
    const end = newline < 0 ? saved.length : newline;
    const line = saved.slice(start, end);
    if (line.startsWith(":")) add(line.slice(1, line.indexOf(" ")), 0);
    else if (line.startsWith(APPEND)) {
      const nameEnd = line.indexOf(" ", APPEND.length);
      add(line.slice(APPEND.length, nameEnd < 0 ? undefined : nameEnd), 1);
      const target = / -[jg] (\S+)/.exec(line.slice(line.lastIndexOf('"') + 1))?.[1];
      if (target !== undefined) targets.push(target);
    }
    start = end + 1;
  }
  // Targets that are no chains of the table (DNAT, …) do not count.
  for (const target of targets) if (uses.has(target)) add(target, 1);
  return uses;
}
