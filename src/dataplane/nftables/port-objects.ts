/** What the kernel holds for one service port, as far as it must be remembered to change or remove it. */

import { exactList } from "../../cluster/exact-list.ts";
import { ruleDigest } from "../../kernel/nftables/rule-digest.ts";
import type { NftChain, NftSet } from "../../kernel/nftables/ruleset.ts";
import { smallMap } from "../shared/small-map.ts";
import type { ServicePortPlan, SharedElement } from "./table-plan.ts";

export interface InstalledPort {
  /** Chain name → digest of its rules. */
  readonly chains: ReadonlyMap<string, string>;
  /** Affinity set name → timeout in seconds. */
  readonly affinitySets: ReadonlyMap<string, number>;
  readonly elements: readonly SharedElement[];
  readonly lacksInternal: boolean;
  readonly lacksExternal: boolean;
}

/** A plan with the digests of its chains. */
export interface DesiredPort extends InstalledPort {
  readonly chainObjects: readonly NftChain[];
  readonly setObjects: readonly NftSet[];
}

/** The digest of a chain whose rules have these digests; rules of others make it differ from any of ours. Pure. */
export function chainDigest(ruleDigests: readonly (string | undefined)[]): string {
  return ruleDigests.map((digest) => digest ?? "?").join(" ");
}

/** The digest of a planned chain. Pure. */
export function digestOf(chain: NftChain): string {
  return chainDigest(chain.rules.map(ruleDigest));
}

/** Nearly no port has any: those share one map. */
const NO_SETS: ReadonlyMap<string, number> = new Map();

function timeoutsOf(sets: readonly NftSet[]): ReadonlyMap<string, number> {
  return sets.length === 0 ? NO_SETS : new Map(sets.map((set) => [set.name, set.timeoutSeconds ?? 0]));
}

/** Pure. */
export function desiredPort(plan: ServicePortPlan): DesiredPort {
  return {
    chains: smallMap(plan.chains.map((chain) => [chain.name, digestOf(chain)] as const)),
    affinitySets: timeoutsOf(plan.affinitySets),
    elements: plan.elements,
    lacksInternal: plan.lacksLocal.internal,
    lacksExternal: plan.lacksLocal.external,
    chainObjects: plan.chains,
    setObjects: plan.affinitySets,
  };
}

/** The part worth remembering. Pure. */
export function installedPort(desired: DesiredPort): InstalledPort {
  const { chains, affinitySets, elements, lacksInternal, lacksExternal } = desired;
  return { chains, affinitySets, elements: exactList(elements), lacksInternal, lacksExternal };
}

export const NOTHING_INSTALLED: InstalledPort = {
  chains: new Map(),
  affinitySets: new Map(),
  elements: [],
  lacksInternal: false,
  lacksExternal: false,
};
