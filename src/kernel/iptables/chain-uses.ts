/**
 * How much each chain is used: the rules in it and the rules that go to it. The kernel counts this for every chain of
 * nf_tables, so that a flushed chain or a foreign rule shows without any rule being read. Pure.
 */
import { targetOf } from "./parser/rule-parts.ts";
import type { SavedTable } from "./parser/ruleset.ts";

/** The same from a table that was saved. */
export function chainUsesOf(table: SavedTable): Map<string, number> {
  const uses = new Map<string, number>();
  for (const [chain, { rules }] of table) uses.set(chain, rules.length);
  for (const { rules } of table.values()) {
    for (const rule of rules) {
      const target = targetOf(rule);
      const count = target === undefined ? undefined : uses.get(target);
      // Targets that are no chains of the table (DNAT, …) do not count.
      if (target !== undefined && count !== undefined) uses.set(target, count + 1);
    }
  }
  return uses;
}
