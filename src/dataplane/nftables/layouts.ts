/**
 * The layouts there are. They share one table, so one takes over from the other in a single transaction: all that is of either
 * and not wanted any more goes.
 */
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { BASE_CHAINS } from "./base-chains.ts";
import { planServicePort as planCompatiblePort } from "./compatible/plan-service-port.ts";
import { planStatic as planCompatibleStatic, SHARED_SETS } from "./compatible/plan-static.ts";
import { clientMaps, clientMapsInDoubt } from "./flat/clients.ts";
import { FLAT_CHAINS, isChainOnDemand } from "./flat/names.ts";
import { changedSlots, planServicePort as planFlatPort } from "./flat/plan-service-port.ts";
import { planStatic as planFlatStatic } from "./flat/plan-static.ts";
import { flatSet, isTrackedSet } from "./flat/sets.ts";
import type { Layout } from "./layout.ts";
import { LAYOUT_NAMES, type LayoutName } from "./layout-name.ts";
import { CHAINS, isAffinitySet, isServiceChain } from "./names.ts";

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

/** Whether a set has a name that some layout gives. Pure. */
export function isOurSet(name: string): boolean {
  return isAffinitySet(name) || sharedSetOfAny(name) !== undefined;
}
