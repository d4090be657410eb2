/**
 * The rules of one owner as lines of iptables-restore. What was written is remembered in this form, and the next change is compared
 * with it: 150 bytes for an entry of a shared chain, and no second planning.
 */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines, ruleLines } from "../../../kernel/iptables/rule-text.ts";
import type { ServicePortPlan, ServiceTable } from "./rules-plan.ts";

/** Rules in the kernel, as far as they must be known to change or remove them: the last known good ones of their owner. */
export interface OwnerRules {
  /** Appends its entries to the shared chains of filter, in order. */
  readonly filter: string;
  /** The same for nat. */
  readonly nat: string;
  /** Declares the nat chains that it alone owns. */
  readonly ownChains: string;
  /** Rules in these. */
  readonly ownRuleCount: number;
  /** Rules in its own chains and rules of its own that go to them; undefined when not known. */
  readonly ownUses: number | undefined;
  readonly lacksLocal: ServicePortPlan["lacksLocal"];
}

/** Rules to be written. */
export interface SpelledRules extends OwnerRules {
  /** Appends the rules of its own chains. */
  readonly ownRules: string;
}

const NOTHING_LACKS = { internal: false, external: false };

export const NO_RULES: SpelledRules = {
  filter: "",
  nat: "",
  ownChains: "",
  ownRuleCount: 0,
  ownUses: undefined,
  lacksLocal: NOTHING_LACKS,
  ownRules: "",
};

/** Spells a plan. Throws a RangeError for names that cannot be written into a rule. Pure. */
export function spell(plan: ServicePortPlan): SpelledRules {
  const { shared, ownChains, ownRules, lacksLocal } = plan;
  const entriesOf = (table: ServiceTable) =>
    ruleLines(
      "append",
      shared.flatMap((one) => (one.table === table ? [one.rule] : [])),
    );
  return {
    filter: entriesOf("filter"),
    nat: entriesOf("nat"),
    ownChains: chainLines(ownChains),
    ownRuleCount: ownRules.length,
    ownUses: usesOf(plan),
    // Kept with each service port, and nearly always the same.
    lacksLocal: lacksLocal.internal || lacksLocal.external ? lacksLocal : NOTHING_LACKS,
    ownRules: ruleLines("append", ownRules),
  };
}

/** Forgets the rules of own chains, the largest part, once they are written. */
export function remembered({ filter, nat, ownChains, ownRuleCount, ownUses, lacksLocal }: SpelledRules): OwnerRules {
  return { filter, nat, ownChains, ownRuleCount, ownUses, lacksLocal };
}

function usesOf({ ownChains, ownRules, shared }: ServicePortPlan): number {
  if (ownChains.length === 0) return 0;
  const own: ReadonlySet<string> = new Set(ownChains);
  let uses = ownRules.length;
  for (const { target } of ownRules) if (target.kind === "jump" && own.has(target.chain)) uses += 1;
  for (const { table, rule } of shared) {
    if (table === "nat" && rule.target.kind === "jump" && own.has(rule.target.chain)) uses += 1;
  }
  return uses;
}

/** The chains that lines declare. Pure. */
export function declaredChains(lines: string): ChainName[] {
  return Array.from(lines.matchAll(/^:(\S+)/gm), ([, name = ""]) => name as ChainName); // written from chain names
}

/** The number of rules that lines append, by chain. Pure. */
export function countByChain(lines: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [, chain = ""] of lines.matchAll(/^-A (\S+)/gm)) counts.set(chain, (counts.get(chain) ?? 0) + 1);
  return counts;
}

/** Pure. */
export function lineCount(text: string): number {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}
