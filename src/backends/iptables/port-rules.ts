/**
 * The rules of one service port as restore text, and the little of it that must be remembered to change or remove it.
 */
import type { Rule } from "../../kernel/iptables/rule.ts";
import { ruleSpec } from "../../kernel/iptables/rule-text.ts";
import type { ServicePortPlan } from "./plan-service-port.ts";

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
    lacksInternal: plan.lacksLocal.internal,
    lacksExternal: plan.lacksLocal.external,
    ownText: appendLines(plan.ownRules),
  };
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
  const { filterShared, natShared, ownChains, ownRuleCount, lacksInternal, lacksExternal } = rules;
  return { filterShared, natShared, ownChains, ownRuleCount, lacksInternal, lacksExternal };
}

/** Takes a joined list apart. Pure. */
export function listOf(joined: string): readonly string[] {
  return joined === "" ? [] : joined.split("\n");
}

/** The length of a joined list. Pure. */
export function countOf(joined: string): number {
  if (joined === "") return 0;
  let count = 1;
  for (let at = joined.indexOf("\n"); at >= 0; at = joined.indexOf("\n", at + 1)) count += 1;
  return count;
}
