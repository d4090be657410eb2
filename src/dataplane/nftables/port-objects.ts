/** What the kernel holds for one service port, as far as it must be remembered to change or remove it. */

import { ruleDigest } from "../../kernel/nftables/rule-digest.ts";
import type { NftChain, NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { exactList } from "../../net/exact-list.ts";
import type { ServicePortPlan, SharedElement } from "./table-plan.ts";

export interface InstalledPort {
  /** Chain name → digest of its rules. */
  readonly chains: ReadonlyMap<string, string>;
  /** Affinity set name → timeout in seconds. */
  readonly affinitySets: ReadonlyMap<string, number>;
  /** No key of a set twice. May be planned again each time it is asked for. */
  readonly elements: readonly SharedElement[];
  /** Found in the kernel, where the port has kept it, and not planned. @default false */
  readonly isFound?: boolean;
  /** A Local policy with endpoints somewhere and none here. */
  readonly lacksLocal: ServicePortPlan["lacksLocal"];
  /** What it was planned from; absent for what was found. */
  readonly port?: ServicePort;
  readonly endpoints?: readonly Endpoint[];
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

/** Length of a `ruleDigest`. */
const RULE_DIGEST_LENGTH = 16;

/** The digest of one rule, from that of a chain of ours. Pure. */
export function ruleDigestIn(digest: string, index: number): string {
  const start = index * (RULE_DIGEST_LENGTH + 1);
  return digest.slice(start, start + RULE_DIGEST_LENGTH);
}

/** The digest of a planned chain. Pure. */
export function digestOf(chain: NftChain): string {
  return chainDigest(chain.rules.map(ruleDigest));
}

/** Nearly no port has any: those share one map. */
const NO_SETS: ReadonlyMap<string, number> = new Map();
const NO_CHAINS: ReadonlyMap<string, string> = new Map();
const NOTHING: readonly never[] = Object.freeze([]);

function timeoutsOf(sets: readonly NftSet[]): ReadonlyMap<string, number> {
  return sets.length === 0 ? NO_SETS : new Map(sets.map((set) => [set.name, set.timeoutSeconds ?? 0]));
}

/**
 * Plans a service port; the same function for all of them. Pure.
 *
 * @param slots {@link ServicePortPlan.slots}, where they are known from an earlier plan.
 */
export type PlanPort = (
  port: ServicePort,
  endpoints: readonly Endpoint[],
  slots?: readonly Endpoint[],
) => ServicePortPlan;

/**
 * A service port that has nothing but elements. What these are planned from is the model's: remembering that and planning again
 * takes 60 bytes, and the elements of five endpoints 2 kB.
 */
export class ReplannedPort implements DesiredPort {
  readonly chains = NO_CHAINS;
  readonly affinitySets = NO_SETS;
  readonly chainObjects = NOTHING;
  readonly setObjects = NOTHING;
  readonly lacksLocal: InstalledPort["lacksLocal"];
  /** {@link ServicePortPlan.slots} */
  readonly slots: readonly Endpoint[] | undefined;
  readonly #plan: PlanPort;
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
  /** Until it is remembered. */
  #planned: readonly SharedElement[] | undefined;

  constructor(
    plan: PlanPort,
    port: ServicePort,
    endpoints: readonly Endpoint[],
    { lacksLocal, slots, elements }: Pick<ServicePortPlan, "lacksLocal" | "slots"> & Partial<ServicePortPlan>,
  ) {
    this.#plan = plan;
    this.port = port;
    this.endpoints = endpoints;
    this.lacksLocal = lacksLocal;
    this.slots = slots;
    this.#planned = elements;
  }

  /** Whether it was planned from this very port: then nothing but endpoints may differ. */
  isOf(port: ServicePort): boolean {
    return this.port === port;
  }

  /** The same with other endpoints in its slots. */
  with(endpoints: readonly Endpoint[], slots: readonly Endpoint[]): ReplannedPort {
    return new ReplannedPort(this.#plan, this.port, endpoints, { lacksLocal: this.lacksLocal, slots });
  }

  /** From now on elements are planned again whenever they are asked for. */
  settled(): this {
    this.#planned = undefined;
    return this;
  }

  get elements(): readonly SharedElement[] {
    return this.#planned ?? this.#plan(this.port, this.endpoints, this.slots).elements;
  }
}

/** Plans a service port. @param endpoints all its endpoints, sorted by text. Pure if `plan` is. */
export function desiredPort(plan: PlanPort, port: ServicePort, endpoints: readonly Endpoint[]): DesiredPort {
  const planned = plan(port, endpoints);
  const { chains, affinitySets, elements, lacksLocal } = planned;
  if (chains.length + affinitySets.length === 0) return new ReplannedPort(plan, port, endpoints, planned);
  return {
    chains: new Map(chains.map((chain) => [chain.name, digestOf(chain)])),
    affinitySets: timeoutsOf(affinitySets),
    elements,
    lacksLocal,
    port,
    endpoints,
    chainObjects: chains,
    setObjects: affinitySets,
  };
}

/** The part worth remembering. Pure. */
export function installedPort(desired: DesiredPort): InstalledPort {
  if (desired instanceof ReplannedPort) return desired.settled();
  const { chainObjects: _chains, setObjects: _sets, elements, ...rest } = desired;
  return { ...rest, elements: exactList(elements) };
}

export const NOTHING_INSTALLED: InstalledPort = {
  chains: NO_CHAINS,
  affinitySets: NO_SETS,
  elements: [],
  lacksLocal: { internal: false, external: false },
};
