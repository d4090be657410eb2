/**
 * The layouts of the table. They share one table, so one takes over from the other in a single transaction, which
 * deletes the objects of either layout that are no longer wanted.
 */
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import { BASE_CHAINS } from "./base-chains.ts";
import { planServicePort as planCompatiblePort } from "./compatible/plan-service-port.ts";
import { planStatic as planCompatibleStatic, SHARED_SETS } from "./compatible/plan-static.ts";
import { clientMaps, clientMapsInDoubt } from "./flat/clients.ts";
import { ALLOWED_SOURCES, endpointMapOf, FLAT_CHAINS, hashClassOf, isChainOnDemand } from "./flat/names.ts";
import { changedSlots, planServicePort as planFlatPort } from "./flat/plan-service-port.ts";
import { planStatic as planFlatStatic } from "./flat/plan-static.ts";
import { flatSet, isTrackedSet } from "./flat/sets.ts";
import { LAYOUT_NAMES, type LayoutName } from "./layout-name.ts";
import { localhostRejectChain } from "./localhost-node-ports.ts";
import { CHAINS, isAffinitySet, isServiceChain } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import type { ElementChange, ServicePortPlan, SetsInUse, SharedElement, StaticPlan } from "./table-plan.ts";

/** How Services are laid out in the table: the part that differs between layouts. */
export interface Layout {
  readonly name: LayoutName;
  /** Plans everything but Services. @param inUse shared sets that have elements of Services. */
  planStatic(config: PlanConfig, facts: PlanFacts, inUse: SetsInUse): StaticPlan;
  /**
   * Plans all that one service port owns.
   *
   * @param endpoints all its endpoints, sorted by text; empty if it has none.
   * @param slots {@link ServicePortPlan.slots}, if known from an earlier plan.
   */
  planServicePort(
    port: ServicePort,
    endpoints: readonly Endpoint[],
    config: PlanConfig,
    facts: PlanFacts,
    slots?: readonly Endpoint[],
  ): ServicePortPlan;
  /**
   * The changes caused by new endpoints of a service port, and the resulting slots; undefined if the plans must be compared.
   * The changes equal those between the plans, are all in untracked sets, and leave the rest of the plan the same.
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
  /** The set or map of this name that Services share; undefined if this layout has none. */
  sharedSet(name: string): NftSet | undefined;
  /**
   * Whether the owner of each element of a shared set is remembered: several service ports may want one key, or lookups
   * need the owner. For the other sets owners can be derived by planning again. @default all
   */
  isTracked?(this: void, set: string): boolean;
  /** Packet-filled maps that may have stale entries after this change of a service port's elements. @default none */
  clientMapsInDoubt?(before: readonly SharedElement[], after: readonly SharedElement[]): readonly string[];
  /** All packet-filled maps of a table. @default none */
  clientMaps?(plan: StaticPlan): readonly string[];
  /** Whether service ports have chains of their own. @default false */
  readonly hasPortChains?: boolean;
  /** Names of the chains that belong to no service port, needed or not. */
  readonly fixedChains: ReadonlySet<string>;
}

const COMMON_CHAINS = [...Object.values(CHAINS), ...BASE_CHAINS, ...PROTOCOLS.map(localhostRejectChain)];
const COMPATIBLE_SETS: ReadonlyMap<string, NftSet> = new Map(SHARED_SETS.map((set) => [set.name, set]));

/** The sets and maps of choices by hash are those of the flat layout. */
function hashedSet(name: string): NftSet | undefined {
  return (endpointMapOf(name) ?? hashClassOf(name)) === undefined ? undefined : flatSet(name);
}

export const LAYOUTS: Readonly<Record<LayoutName, Layout>> = {
  Compatible: {
    name: "Compatible",
    planStatic: planCompatibleStatic,
    planServicePort: planCompatiblePort,
    sharedSet: (name) => COMPATIBLE_SETS.get(name) ?? hashedSet(name),
    hasPortChains: true,
    fixedChains: new Set(COMMON_CHAINS),
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
    fixedChains: new Set([...COMMON_CHAINS, ...Object.values(FLAT_CHAINS)]),
  },
};

/** The shared set of this name in any layout. Layouts give sets of the same name the same meaning. */
export function sharedSetOfAny(name: string): NftSet | undefined {
  for (const layout of LAYOUT_NAMES) {
    const set = LAYOUTS[layout].sharedSet(name);
    if (set !== undefined) return set;
  }
  return undefined;
}

/** Whether any layout uses this chain name. */
export function isOurChain(name: string): boolean {
  const isFixed = LAYOUT_NAMES.some((layout) => LAYOUTS[layout].fixedChains.has(name)) || isChainOnDemand(name);
  return isFixed || isServiceChain(name);
}

/** Whether any layout uses this set name, or used it. */
export function isOurSet(name: string): boolean {
  // Version 0.1 kept all sources in one set.
  return isAffinitySet(name) || sharedSetOfAny(name) !== undefined || name === ALLOWED_SOURCES;
}
