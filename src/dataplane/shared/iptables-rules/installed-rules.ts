/** What the kernel holds for one owner, as far as it must be known to change or remove it: its last known good rules. */
import type { ChainName, PrintedRule, Rule } from "../../../kernel/iptables/rule.ts";
import type { ServicePortPlan, ServiceTable, SharedRule } from "./rules-plan.ts";

/** An entry of a shared chain: planned by this process, or found in the kernel. */
export type InstalledRule = SharedRule<Rule | PrintedRule>;

/** Rules of one owner in the kernel. */
export interface InstalledRules {
  /** Its entries in shared chains, in order. May be planned again each time it is asked for (`planned-rules.ts`). */
  readonly shared: readonly InstalledRule[];
  /** Their number, by chain. */
  readonly sharedCounts: SharedCounts;
  /** Names of the nat chains that it alone owns. */
  readonly ownChains: readonly ChainName[];
  /** Rules in these. */
  readonly ownRuleCount: number;
  /** Rules in its own chains and rules of its own that go to them; undefined when not known. */
  readonly ownUses: number | undefined;
  /** A Local policy with endpoints somewhere and none here (metric `sync_proxy_rules_no_local_endpoints_total`). */
  readonly lacksLocal: { readonly internal: boolean; readonly external: boolean };
}

/** Installed rules that are those of a plan, which can be made again. */
export interface InstalledPlan extends InstalledRules {
  plan(): ServicePortPlan;
}

/** Numbers of rules in shared chains, by table and chain. */
export type SharedCounts = Readonly<Record<ServiceTable, ReadonlyMap<string, number>>>;

const NONE_COUNTED: SharedCounts = { filter: new Map(), nat: new Map() };

/** What an owner without rules has. */
export const NO_RULES: InstalledRules = {
  shared: [],
  sharedCounts: NONE_COUNTED,
  ownChains: [],
  ownRuleCount: 0,
  ownUses: undefined,
  lacksLocal: { internal: false, external: false },
};

/** The entries of one table, in order. Pure. */
export function inTable<R extends Rule | PrintedRule>(
  shared: readonly SharedRule<R>[],
  table: ServiceTable,
): readonly R[] {
  return shared.flatMap((one) => (one.table === table ? [one.rule] : []));
}

/** Counts entries of shared chains. Pure. */
export function countShared(shared: readonly InstalledRule[]): SharedCounts {
  if (shared.length === 0) return NONE_COUNTED;
  const counts = { filter: new Map<string, number>(), nat: new Map<string, number>() };
  for (const { table, rule } of shared) counts[table].set(rule.chain, (counts[table].get(rule.chain) ?? 0) + 1);
  return counts;
}

/** The rules of one table in all shared chains. Pure. */
export function sumOf(counts: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const count of counts.values()) sum += count;
  return sum;
}

/** The same rules with other entries in the shared chains of a table. Pure. */
export function withShared(
  rules: InstalledRules,
  table: ServiceTable,
  entries: readonly (Rule | PrintedRule)[],
): InstalledRules {
  const others = rules.shared.filter((one) => one.table !== table);
  const shared = [...others, ...entries.map((rule) => ({ table, rule }))];
  const { ownChains, ownRuleCount, ownUses, lacksLocal } = rules;
  return { shared, sharedCounts: countShared(shared), ownChains, ownRuleCount, ownUses, lacksLocal };
}
