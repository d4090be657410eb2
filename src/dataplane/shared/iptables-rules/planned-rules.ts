/**
 * Installed rules that are remembered by what they were planned from. A plan is a function of its input, and the model
 * keeps the input anyway: planning the few rules again that a change replaces takes microseconds, and keeping the rules of
 * ten thousand service ports would take megabytes (docs/performance.md).
 */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { countShared, type InstalledPlan, type SharedCounts } from "./installed-rules.ts";
import type { ServicePortPlan, SharedRule } from "./rules-plan.ts";

/** The functions from what a mode knows of a service port to its rules. Pure: the same input gives the same rules. */
export interface RulesPlanner<Input> {
  plan(input: Input): ServicePortPlan;
  /** The part of the plan that is in shared chains. */
  sharedRules(input: Input): readonly SharedRule[];
}

/** Makes {@link PlannedRules} for one backend. */
export class PlanMemory<Input> {
  readonly planner: RulesPlanner<Input>;
  /** Nearly all service ports have the same numbers of rules in the same chains: one object for all of these. */
  readonly #counts = new Map<string, SharedCounts>();

  constructor(planner: RulesPlanner<Input>) {
    this.planner = planner;
  }

  /** @param plan what the planner makes of the input. */
  remember(input: Input, plan: ServicePortPlan): PlannedRules<Input> {
    return new PlannedRules(this.planner, input, plan, this.#countsOf(plan.shared));
  }

  #countsOf(shared: readonly SharedRule[]): SharedCounts {
    let key = "";
    for (const { table, rule } of shared) key += `${table} ${rule.chain}\n`;
    let counts = this.#counts.get(key);
    if (counts === undefined) {
      counts = countShared(shared);
      this.#counts.set(key, counts);
    }
    return counts;
  }
}

const NOTHING_LACKS = { internal: false, external: false };

/** Rules of a service port that its plan tells. */
export class PlannedRules<Input> implements InstalledPlan {
  readonly sharedCounts: SharedCounts;
  readonly ownRuleCount: number;
  readonly ownUses: number;
  readonly lacksLocal: ServicePortPlan["lacksLocal"];
  readonly #planner: RulesPlanner<Input>;
  readonly #input: Input;
  /** Joined: one text for each service port costs a fourth of a list of names. */
  readonly #ownChains: string;

  constructor(planner: RulesPlanner<Input>, input: Input, plan: ServicePortPlan, sharedCounts: SharedCounts) {
    this.#planner = planner;
    this.#input = input;
    this.#ownChains = plan.ownChains.join("\n");
    this.sharedCounts = sharedCounts;
    this.ownRuleCount = plan.ownRules.length;
    this.ownUses = usesOf(plan);
    const { internal, external } = plan.lacksLocal;
    this.lacksLocal = internal || external ? plan.lacksLocal : NOTHING_LACKS;
  }

  get ownChains(): readonly ChainName[] {
    // Joined from chain names, none of which has a line feed.
    return this.#ownChains === "" ? [] : (this.#ownChains.split("\n") as ChainName[]);
  }

  get shared(): readonly SharedRule[] {
    return this.#planner.sharedRules(this.#input);
  }

  plan(): ServicePortPlan {
    return this.#planner.plan(this.#input);
  }
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
