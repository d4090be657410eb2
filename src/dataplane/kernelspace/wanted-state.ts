/** What all service ports together want of HNS, kept up to date port by port, with what one sync has changed in it. No I/O. */
import { LB_DSR } from "../../kernel/hcn/documents.ts";
import { comparePrecedence } from "../../model/frontend-ownership.ts";
import type { IpAddress } from "../../net/ip.ts";
import { KeyOwners, type Touched } from "../shared/key-owners.ts";
import type { LoadBalancerKind, PlannedLoadBalancer, ServicePortPlan } from "./plan-service-port.ts";

/** What a sync may have changed. */
export interface WantedChanges {
  readonly loadBalancers: Touched<PlannedLoadBalancer>;
  /** Addresses of endpoints, those of cluster IPs included. */
  readonly addresses: Set<IpAddress>;
}

/** No changes yet; {@link WantedState.put} notes them. */
export function noChanges(): WantedChanges {
  return { loadBalancers: new Map(), addresses: new Set() };
}

const NOTHING: ServicePortPlan = {
  loadBalancers: [],
  endpoints: new Map(),
  vip: undefined,
  lacksLocal: { internal: false, external: false },
  remarks: [],
};

export class WantedState {
  /** By frontend. Health checks of two ports of a Service are one. */
  readonly loadBalancers = new KeyOwners<PlannedLoadBalancer>((a, b) => compareKinds(a.kind, b.kind));
  /** Who names an address, and whether as one of this node: the reference counts of endpoints. */
  readonly #users = new Map<IpAddress, Map<string, boolean>>();
  readonly #vips = new Map<IpAddress, Set<string>>();
  readonly #plans = new Map<string, ServicePortPlan>();
  readonly #lacking = { internal: 0, external: 0 };
  #indirect = 0;

  /** Service ports with a Local policy, endpoints somewhere and none here. */
  get lacking(): { readonly internal: number; readonly external: number } {
    return { ...this.#lacking };
  }

  /** Frontends that lead health checks to the node itself. */
  healthCheckKeys(): readonly string[] {
    return [...this.loadBalancers.keys()].filter((key) => this.loadBalancers.get(key)?.kind === "health-check");
  }

  /** Load balancers whose endpoints do not answer clients directly: HNS takes a block of dynamic ports for each. */
  get indirectCount(): number {
    return this.#indirect;
  }

  /** Every address that is to have an endpoint. */
  *addresses(): Iterable<IpAddress> {
    yield* this.#users.keys();
    yield* this.#vips.keys();
  }

  /** How many service ports name an address. */
  usersOf(address: IpAddress): number {
    return this.#users.get(address)?.size ?? 0;
  }

  /** What an address is to have; undefined: nothing. */
  reasonFor(address: IpAddress): "local" | "remote" | "vip" | undefined {
    const users = this.#users.get(address);
    if (users !== undefined) return [...users.values()].includes(true) ? "local" : "remote";
    return this.#vips.has(address) ? "vip" : undefined;
  }

  /** Frontends of the service ports that name an address. */
  *keysNaming(address: IpAddress): Iterable<string> {
    for (const owner of this.#users.get(address)?.keys() ?? []) {
      for (const { key } of this.#plans.get(owner)?.loadBalancers ?? []) yield key;
    }
  }

  /** Service ports that want an endpoint for an address. */
  ownersOf(address: IpAddress): readonly string[] {
    return [...(this.#users.get(address)?.keys() ?? this.#vips.get(address) ?? [])];
  }

  /** Notes what a port wants from now on; undefined: nothing. */
  put(owner: string, plan: ServicePortPlan | undefined, changes?: WantedChanges): void {
    const before = this.#plans.get(owner) ?? NOTHING;
    const after = plan ?? NOTHING;
    if (plan === undefined) this.#plans.delete(owner);
    else this.#plans.set(owner, plan);
    const keyed = ({ loadBalancers }: ServicePortPlan) => loadBalancers.map((one) => [one.key, one] as const);
    this.loadBalancers.replace(owner, keyed(before), keyed(after), changes?.loadBalancers);
    this.#indirect += indirectIn(after) - indirectIn(before);
    this.#putAddresses(owner, before, after, changes?.addresses);
    for (const policy of ["internal", "external"] as const) {
      this.#lacking[policy] += Number(after.lacksLocal[policy]) - Number(before.lacksLocal[policy]);
    }
  }

  #putAddresses(owner: string, before: ServicePortPlan, after: ServicePortPlan, touched?: Set<IpAddress>): void {
    for (const address of before.endpoints.keys()) {
      const users = this.#users.get(address);
      users?.delete(owner);
      if (users?.size === 0) this.#users.delete(address);
      touched?.add(address);
    }
    for (const [address, isLocal] of after.endpoints) {
      const users = this.#users.get(address) ?? new Map<string, boolean>();
      this.#users.set(address, users.set(owner, isLocal));
      touched?.add(address);
    }
    for (const [vip, isWanted] of [
      [before.vip, false],
      [after.vip, true],
    ] as const) {
      if (vip === undefined) continue;
      const owners = this.#vips.get(vip) ?? new Set<string>();
      if (isWanted) this.#vips.set(vip, owners.add(owner));
      else if (owners.delete(owner) && owners.size === 0) this.#vips.delete(vip);
      touched?.add(vip);
    }
  }
}

function indirectIn({ loadBalancers }: ServicePortPlan): number {
  return loadBalancers.filter(({ flags }) => (flags & LB_DSR) === 0).length;
}

function compareKinds(a: LoadBalancerKind, b: LoadBalancerKind): number {
  if (a === "health-check" || b === "health-check") return Number(a === "health-check") - Number(b === "health-check");
  return comparePrecedence(a, b);
}
