/** What `iptables-save` shows of the portal rules: enough to see that somebody else changed them. Pure. */
import { hash } from "node:crypto";
import type { IptablesTable } from "../../kernel/iptables/iptables.ts";
import { PORTAL_CHAINS, PORTAL_JUMPS } from "./plan-portal-rules.ts";

const CHAINS: ReadonlySet<string> = new Set(Object.values(PORTAL_CHAINS));

/** Text of `iptables-save -t TABLE`. */
export type SavedTables = Readonly<Record<Exclude<IptablesTable, "mangle">, string>>;

/** The lines of the rules in the portal chains; undefined when a jump to one of these is missing. */
export function savedLines(saved: SavedTables): readonly string[] | undefined {
  const own: string[] = [];
  const missing = new Set(PORTAL_JUMPS);
  for (const table of ["filter", "nat"] as const) {
    for (const line of saved[table].split("\n")) {
      if (!line.startsWith("-A ")) continue;
      if (CHAINS.has(line.slice(3, line.indexOf(" ", 3)))) {
        own.push(line);
        continue;
      }
      for (const jump of missing) {
        const isIt =
          jump.table === table && line.startsWith(`-A ${jump.rule.chain} `) && line.endsWith(`-j ${jump.target}`);
        if (isIt) missing.delete(jump);
      }
    }
  }
  return missing.size === 0 ? own : undefined;
}

/** A short text that is the same for the same lines in the same order. */
export function digestOf(lines: readonly string[]): string {
  return hash("sha256", lines.join("\n"));
}
