/**
 * The rules of one service port as restore text, and the little of it that must be remembered to change or remove it.
 */
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { ruleSpec } from "../../../kernel/iptables/rule-text.ts";
import type { ServicePortPlan } from "./rules-plan.ts";

/**
 * What the kernel holds for one owner. Lists are joined with line feeds (empty text: empty list): one string costs far
 * less to keep per service port than an array of them.
 */
export interface InstalledRules {
  /** Rule specifications (`CHAIN matches target`) in shared chains of `filter`. */
  readonly filterShared: string;
  /** The same in `nat`. */
  readonly natShared: string;
  /** Names of nat chains it alone owns. */
  readonly ownChains: string;
  readonly ownRuleCount: number;
  /** Rules in its own chains and rules of its own that go to them; undefined when not known. */
  readonly ownUses?: number | undefined;
  readonly lacksInternal: boolean;
  readonly lacksExternal: boolean;
}

/** What a service port shall have; `ownText` is not kept once the kernel has it. */
export interface PortRules extends InstalledRules {
  /** `-A` lines of its own chains, each ended by a line feed. */
  readonly ownText: string;
}

/** Spells a plan. Throws a RangeError for names that cannot be written into a rule. Pure. */
export function spellPlan(plan: ServicePortPlan): PortRules {
  return {
    filterShared: sharedSpecs(plan, "filter"),
    natShared: sharedSpecs(plan, "nat"),
    ownChains: plan.ownChains.join("\n"),
    ownRuleCount: plan.ownRules.length,
    ownUses: usesOf(plan),
    lacksInternal: plan.lacksLocal.internal,
    lacksExternal: plan.lacksLocal.external,
    ownText: appendLines(plan.ownRules),
  };
}

function usesOf({ ownChains, ownRules, shared }: ServicePortPlan): number {
  const own: ReadonlySet<string> = new Set(ownChains);
  let uses = ownRules.length;
  const note = ({ target }: Rule): void => {
    if (target.kind === "jump" && own.has(target.chain)) uses += 1;
  };
  for (const rule of ownRules) note(rule);
  for (const { table, rule } of shared) if (table === "nat") note(rule);
  return uses;
}

function sharedSpecs(plan: ServicePortPlan, table: "filter" | "nat"): string {
  const specs: string[] = [];
  for (const shared of plan.shared) if (shared.table === table) specs.push(ruleSpec(shared.rule));
  return specs.join("\n");
}

/** `-A` lines for rules, each ended by a line feed. Pure. */
export function appendLines(rules: readonly Rule[]): string {
  return rules.map((rule) => `-A ${ruleSpec(rule)}\n`).join("");
}

/** The part of spelled rules worth remembering. Pure. */
export function installed(rules: PortRules): InstalledRules {
  const { filterShared, natShared, ownChains, ownRuleCount, ownUses, lacksInternal, lacksExternal } = rules;
  return { filterShared, natShared, ownChains, ownRuleCount, ownUses, lacksInternal, lacksExternal };
}

/** Takes a joined list apart. Pure. */
export function listOf(joined: string): readonly string[] {
  return joined === "" ? [] : joined.split("\n");
}

/** Adds to the number of rules of each chain those of a joined list of specifications. Pure. */
export function countByChain(joined: string, counts: Map<string, number>): void {
  for (let at = 0; joined !== "" && at >= 0; ) {
    const end = joined.indexOf("\n", at);
    const chain = joined.slice(at, joined.indexOf(" ", at));
    counts.set(chain, (counts.get(chain) ?? 0) + 1);
    at = end < 0 ? -1 : end + 1;
  }
}

/** The length of a joined list. Pure. */
export function countOf(joined: string): number {
  if (joined === "") return 0;
  let count = 1;
  for (let at = joined.indexOf("\n"); at >= 0; at = joined.indexOf("\n", at + 1)) count += 1;
  return count;
}
