/** What saved tables show of the portal rules: enough to see that another program changed them. Pure. */
import { hash } from "node:crypto";
import type { IptablesTable } from "../../kernel/iptables/iptables.ts";
import { targetOf } from "../../kernel/iptables/parser/rule-parts.ts";
import type { SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import { PORTAL_CHAINS, PORTAL_JUMPS } from "./plan-portal-rules.ts";

const CHAINS: ReadonlySet<string> = new Set(Object.values(PORTAL_CHAINS));

export type SavedTables = Readonly<Record<Exclude<IptablesTable, "mangle">, SavedTable>>;

/** The rules in the portal chains, chains named; undefined when a jump to one of these is missing. */
export function savedRules(saved: SavedTables): readonly string[] | undefined {
  const hasJumps = PORTAL_JUMPS.every(({ table, rule, target }) => {
    const rules = table === "mangle" ? undefined : saved[table].get(rule.chain)?.rules;
    return rules?.some((text) => targetOf(text) === target) === true;
  });
  if (!hasJumps) return undefined;
  return (["filter", "nat"] as const).flatMap((table) =>
    [...saved[table]].flatMap(([chain, { rules }]) =>
      CHAINS.has(chain) ? rules.map((text) => `${chain} ${text}`) : [],
    ),
  );
}

/** A short text that is the same for the same rules in the same order. */
export function digestOf(rules: readonly string[]): string {
  return hash("sha256", rules.join("\n"));
}
