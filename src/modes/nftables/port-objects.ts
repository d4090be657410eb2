/** The part of a service port's state in the kernel that is needed to change or remove it. */

import { ruleDigest } from "../../kernel/nftables/rule-digest.ts";
import type { NftChain, NftSet } from "../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { exactList } from "../../net/compact.ts";
import type { ServicePortPlan, SharedElement } from "./table-plan.ts";

export interface InstalledPort {
  /** Chain name → digest of its rules. */
  readonly chains: ReadonlyMap<string, string>;
  /** Affinity set name → timeout in seconds. */
  readonly affinitySets: ReadonlyMap<string, number>;
  /** No key of a set twice. Each read may plan them again. */
  readonly elements: readonly SharedElement[];
  /** Found in the kernel as last known good rules, not planned. @default false */
  readonly isFound?: boolean;
}

/** A plan with the digests of its chains. */
export interface DesiredPort extends InstalledPort {
  readonly chainObjects: readonly NftChain[];
  readonly setObjects: readonly NftSet[];
}

/** The digest of a chain whose rules have these digests; a foreign rule makes it differ from all of ours. */
export function chainDigest(ruleDigests: readonly (string | undefined)[]): string {
  return ruleDigests.map((digest) => digest ?? "?").join(" ");
}

/** Length of a `ruleDigest`. */
const RULE_DIGEST_LENGTH = 16;

/** The digest of one rule, taken from the digest of one of our chains. */
export function ruleDigestIn(digest: string, index: number): string {
  const start = index * (RULE_DIGEST_LENGTH + 1);
  return digest.slice(start, start + RULE_DIGEST_LENGTH);
}

/** The digest of a planned chain. */
export function digestOf(chain: NftChain): string {
  return chainDigest(chain.rules.map(ruleDigest));
}

/** Most ports have none, and share one empty map. */
const NO_SETS: ReadonlyMap<string, number> = new Map();
const NO_CHAINS: ReadonlyMap<string, string> = new Map();
const NOTHING: readonly never[] = Object.freeze([]);

/**
 * Plans a service port; all ports use the same function.
 *
 * @param slots {@link ServicePortPlan.slots}, if known from an earlier plan.
 */
export type PlanPort = (
  port: ServicePort,
  endpoints: readonly Endpoint[],
  slots?: readonly Endpoint[],
) => ServicePortPlan;

/**
 * A service port that has only elements. Their input is shared with the model: keeping references to it and planning
 * again takes 60 bytes, keeping the elements of five endpoints 2 kB.
 */
export class ReplannedPort implements DesiredPort {
  readonly chains = NO_CHAINS;
  readonly affinitySets = NO_SETS;
  readonly chainObjects = NOTHING;
  readonly setObjects = NOTHING;
  /** {@link ServicePortPlan.slots} */
  readonly slots: readonly Endpoint[] | undefined;
  readonly #plan: PlanPort;
  readonly #port: ServicePort;
  readonly #endpoints: readonly Endpoint[];
  /** Dropped by {@link settled}. */
  #planned: readonly SharedElement[] | undefined;

  constructor(
    plan: PlanPort,
    port: ServicePort,
    endpoints: readonly Endpoint[],
    { slots, elements }: Pick<ServicePortPlan, "slots"> & Partial<ServicePortPlan>,
  ) {
    this.#plan = plan;
    this.#port = port;
    this.#endpoints = endpoints;
    this.slots = slots;
    this.#planned = elements;
  }

  /** Whether it was planned from this very object: then only endpoints may differ. */
  isOf(port: ServicePort): boolean {
    return this.#port === port;
  }

  /** A copy with other endpoints in its slots. */
  with(endpoints: readonly Endpoint[], slots: readonly Endpoint[]): ReplannedPort {
    return new ReplannedPort(this.#plan, this.#port, endpoints, { slots });
  }

  /** Forgets the elements: from now on each read plans them again. */
  settled(): this {
    this.#planned = undefined;
    return this;
  }

  get elements(): readonly SharedElement[] {
    return this.#planned ?? this.#plan(this.#port, this.#endpoints, this.slots).elements;
  }
}

/** Plans a service port. @param endpoints all its endpoints, sorted by text. */
export function desiredPort(plan: PlanPort, port: ServicePort, endpoints: readonly Endpoint[]): DesiredPort {
  const planned = plan(port, endpoints);
  const { chains, affinitySets, elements } = planned;
  if (chains.length + affinitySets.length === 0) return new ReplannedPort(plan, port, endpoints, planned);
  return {
    chains: new Map(chains.map((chain) => [chain.name, digestOf(chain)])),
    affinitySets:
      affinitySets.length === 0 ? NO_SETS : new Map(affinitySets.map((set) => [set.name, set.timeoutSeconds ?? 0])),
    elements,
    chainObjects: chains,
    setObjects: affinitySets,
  };
}

/** The part of a plan that is kept after its commit. */
export function installedPort(desired: DesiredPort): InstalledPort {
  if (desired instanceof ReplannedPort) return desired.settled();
  const { chainObjects: _chains, setObjects: _sets, elements, ...rest } = desired;
  return { ...rest, elements: exactList(elements) };
}

export const NOTHING_INSTALLED: InstalledPort = {
  chains: NO_CHAINS,
  affinitySets: NO_SETS,
  elements: [],
};
