/**
 * The rules of one owner as lines of iptables-restore. Written rules are kept in this form for comparison with the next
 * change: 150 bytes for an entry of a shared chain, and nothing is planned twice.
 */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines, ruleLines } from "../../../kernel/iptables/rule-text.ts";
import type { ServicePortPlan, ServiceTable } from "./rules-plan.ts";

/** An owner's rules in the kernel (its last known good ones), in the detail needed to change or remove them. */
export interface OwnerRules {
  /** Lines that append its entries to the shared chains of filter, in order. */
  readonly filter: string;
  /** Likewise for nat. */
  readonly nat: string;
  /** Lines that declare the nat chains it owns alone. */
  readonly ownChains: string;
  /** How many rules its own chains have. */
  readonly ownRuleCount: number;
  /** How many rules are in its own chains, plus its rules that jump to them; undefined if unknown. */
  readonly ownUses: number | undefined;
}

/** An owner's rules to be written. */
export interface SpelledRules extends OwnerRules {
  /** Lines that append the rules of its own chains. */
  readonly ownRules: string;
}

export const NO_RULES: SpelledRules = {
  filter: "",
  nat: "",
  ownChains: "",
  ownRuleCount: 0,
  ownUses: undefined,
  ownRules: "",
};

/** Spells a plan as lines. @throws RangeError for names that cannot be written into a rule. */
export function spell(plan: ServicePortPlan): SpelledRules {
  const { shared, ownChains, ownRules } = plan;
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
    ownRules: ruleLines("append", ownRules),
  };
}

/** What is kept after writing: without the rules of own chains, the largest part. */
export function remembered({ filter, nat, ownChains, ownRuleCount, ownUses }: SpelledRules): OwnerRules {
  return { filter, nat, ownChains, ownRuleCount, ownUses };
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

/** The chains that the lines declare. */
export function declaredChains(lines: string): ChainName[] {
  return Array.from(lines.matchAll(/^:(\S+)/gm), ([, name = ""]) => name as ChainName); // written from chain names
}

/** The number of rules that the lines append, by chain. */
export function countByChain(lines: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [, chain = ""] of lines.matchAll(/^-A (\S+)/gm)) counts.set(chain, (counts.get(chain) ?? 0) + 1);
  return counts;
}

export function lineCount(text: string): number {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}
