/**
 * The layouts there are. They share one table, so one takes over from the other in a single transaction: all that is of either
 * and not wanted any more goes.
 */
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { BASE_CHAINS } from "./base-chains.ts";
import { planServicePort as planCompatiblePort } from "./compatible/plan-service-port.ts";
import { planStatic as planCompatibleStatic, SHARED_SETS } from "./compatible/plan-static.ts";
import { clientMaps, clientMapsInDoubt } from "./flat/clients.ts";
import { ALLOWED_SOURCES, FLAT_CHAINS, isChainOnDemand } from "./flat/names.ts";
import { changedSlots, planServicePort as planFlatPort } from "./flat/plan-service-port.ts";
import { planStatic as planFlatStatic } from "./flat/plan-static.ts";
import { flatSet, isTrackedSet } from "./flat/sets.ts";
import { LAYOUT_NAMES, type LayoutName } from "./layout-name.ts";
import { CHAINS, isAffinitySet, isServiceChain } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import type { ElementChange, ServicePortPlan, SetsInUse, SharedElement, StaticPlan } from "./table-plan.ts";

/** How services are laid out in the table: what each layout decides by itself. All else is the same for both. */
export interface Layout {
  readonly name: LayoutName;
  /** Everything but services. @param inUse shared sets that have elements of services. Pure. */
  planStatic(config: PlanConfig, facts: PlanFacts, inUse: SetsInUse): StaticPlan;
  /**
   * All that one service port owns. Pure.
   *
   * @param endpoints all its endpoints, sorted by text; empty when it has none.
   * @param slots {@link ServicePortPlan.slots}, where they are known from an earlier plan.
   */
  planServicePort(
    port: ServicePort,
    endpoints: readonly Endpoint[],
    config: PlanConfig,
    facts: PlanFacts,
    slots?: readonly Endpoint[],
  ): ServicePortPlan;
  /**
   * The changes that new endpoints of a service port make, and the slots after them; undefined where the plans must be compared. The
   * changes are those of the plans, in sets that are not tracked, and the rest of the plan stays the same. Pure.
   *
   * @param had {@link ServicePortPlan.slots}
   * @default always undefined
   */
  changedSlots?(
    port: ServicePort,
    had: readonly Endpoint[],
    endpoints: readonly Endpoint[],
    config: PlanConfig,
    facts: PlanFacts,
  ): { readonly slots: readonly Endpoint[]; readonly changes: readonly ElementChange[] } | undefined;
  /** The set or map of this name that services share; undefined when it is none of this layout's. Pure. */
  sharedSet(name: string): NftSet | undefined;
  /**
   * Shared sets of which it is remembered whom each element is for: several service ports may want one key, or it is asked who has
   * it. What memory of the others would hold can be planned again. @default all
   */
  isTracked?(this: void, set: string): boolean;
  /** Maps filled by packets that may lead to what a service port has no longer, when its elements change so. @default none */
  clientMapsInDoubt?(before: readonly SharedElement[], after: readonly SharedElement[]): readonly string[];
  /** All maps of that kind that a table has. @default none */
  clientMaps?(plan: StaticPlan): readonly string[];
  /** Whether service ports have chains of their own. @default false */
  readonly hasPortChains?: boolean;
  /** Names of the chains that belong to no service port, whether or not they are needed. */
  readonly fixedChains: ReadonlySet<string>;
}

const COMPATIBLE_SETS: ReadonlyMap<string, NftSet> = new Map(SHARED_SETS.map((set) => [set.name, set]));

export const LAYOUTS: Readonly<Record<LayoutName, Layout>> = {
  Compatible: {
    name: "Compatible",
    planStatic: planCompatibleStatic,
    planServicePort: planCompatiblePort,
    sharedSet: (name) => COMPATIBLE_SETS.get(name),
    hasPortChains: true,
    fixedChains: new Set([...Object.values(CHAINS), ...BASE_CHAINS]),
  },
  Flat: {
    name: "Flat",
    planStatic: planFlatStatic,
    planServicePort: planFlatPort,
    changedSlots,
    sharedSet: flatSet,
    isTracked: isTrackedSet,
    clientMapsInDoubt,
    clientMaps,
    fixedChains: new Set([...Object.values(CHAINS), ...Object.values(FLAT_CHAINS), ...BASE_CHAINS]),
  },
};

/** The shared set of this name in any layout. Two that have one of the same name mean the same. Pure. */
export function sharedSetOfAny(name: string): NftSet | undefined {
  for (const layout of LAYOUT_NAMES) {
    const set = LAYOUTS[layout].sharedSet(name);
    if (set !== undefined) return set;
  }
  return undefined;
}

/** Whether a chain is a fixed one of any layout. Pure. */
export function isFixedChain(name: string): boolean {
  return LAYOUT_NAMES.some((layout) => LAYOUTS[layout].fixedChains.has(name)) || isChainOnDemand(name);
}

/** Whether a chain has a name that some layout gives. Pure. */
export function isOurChain(name: string): boolean {
  return isServiceChain(name) || isFixedChain(name);
}

/** Whether a set has a name that some layout gives, or gave. Pure. */
export function isOurSet(name: string): boolean {
  // Version 0.1 had all sources in one set.
  return isAffinitySet(name) || sharedSetOfAny(name) !== undefined || name === ALLOWED_SOURCES;
}
