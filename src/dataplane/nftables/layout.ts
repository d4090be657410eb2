/** How services are laid out in the table: what each layout decides by itself. All else is the same for both. */
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { ElementChange } from "./element-changes.ts";
import type { LayoutName } from "./layout-name.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import type { ServicePortPlan, SetsInUse, SharedElement, StaticPlan } from "./table-plan.ts";

export interface Layout {
  readonly name: LayoutName;
  /** Everything but services. @param inUse shared sets that have elements of services. Pure. */
  planStatic(config: PlanConfig, facts: PlanFacts, inUse: SetsInUse): StaticPlan;
  /** All that one service port owns. @param endpoints all its endpoints, sorted by text; empty when it has none. Pure. */
  planServicePort(
    port: ServicePort,
    endpoints: readonly Endpoint[],
    config: PlanConfig,
    facts: PlanFacts,
  ): ServicePortPlan;
  /**
   * What changes when nothing but the endpoints of a service port does; undefined where its plans must be compared. Gives the changes that
   * these would, of sets that are not tracked, and what is planned beside elements stays the same. Pure. @default always undefined
   */
  changedSlots?(
    port: ServicePort,
    before: readonly Endpoint[],
    after: readonly Endpoint[],
    config: PlanConfig,
    facts: PlanFacts,
  ): readonly ElementChange[] | undefined;
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
