/** What a layout plans: the table without Services, and what each service port adds to it. */

import type { NftChain, NftElement, NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";

/** An element of a set or map that service ports share. */
export interface SharedElement {
  readonly set: string;
  readonly element: NftElement;
}

/** A key whose element must change. Without `after`: delete; without `before`: add; with both: delete and add. */
export interface ElementChange {
  readonly set: string;
  readonly before: NftElement | undefined;
  readonly after: NftElement | undefined;
}

/** What one service port needs in the kernel. A chain comes after those that it goes to. */
export interface ServicePortPlan {
  readonly affinitySets: readonly NftSet[];
  readonly chains: readonly NftChain[];
  readonly elements: readonly SharedElement[];
  /**
   * The endpoint in each slot of the Cluster policy, set only if nothing else in the plan depends on the endpoints: a
   * change of endpoints that keeps the number of slots then changes only slots.
   */
  readonly slots?: readonly Endpoint[] | undefined;
}

/** Everything except Services: sets before the chains that refer to them. */
export interface StaticPlan {
  /** Names of the counters that rules use. They do not change while the process runs. */
  readonly counters: readonly string[];
  readonly sets: readonly NftSet[];
  readonly chains: readonly NftChain[];
}

/** Names of the shared sets with elements of any service port: some sets and rules exist only while needed. */
export type SetsInUse = ReadonlySet<string>;
