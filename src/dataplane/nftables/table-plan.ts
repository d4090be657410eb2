/** What a layout plans: the table without its services, and what each service port puts into it. */

import type { NftChain, NftElement, NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";

/** An element of one of the sets and maps that service ports share. */
export interface SharedElement {
  readonly set: string;
  readonly element: NftElement;
}

/** One key whose element must change. Absent `after`: delete; absent `before`: add; both: delete and add. */
export interface ElementChange {
  readonly set: string;
  readonly before: NftElement | undefined;
  readonly after: NftElement | undefined;
}

/** What one service port needs in the kernel. Chains stand after those that they go to. */
export interface ServicePortPlan {
  readonly affinitySets: readonly NftSet[];
  readonly chains: readonly NftChain[];
  readonly elements: readonly SharedElement[];
  /**
   * The endpoint in each slot of the Cluster policy, where nothing else of the plan depends on the endpoints: then a change of
   * endpoints changes slots only, as long as their number stays.
   */
  readonly slots?: readonly Endpoint[] | undefined;
  /** A Local policy with endpoints somewhere and none here. */
  readonly lacksLocal: { readonly internal: boolean; readonly external: boolean };
}

/** Everything but services: sets before the chains that refer to them. */
export interface StaticPlan {
  /** Names of counters that rules name. They do not change while the process runs. */
  readonly counters: readonly string[];
  readonly sets: readonly NftSet[];
  readonly chains: readonly NftChain[];
}

/** Names of the shared sets that have elements of some service port: some sets and rules exist only while they are needed. */
export type SetsInUse = ReadonlySet<string>;
