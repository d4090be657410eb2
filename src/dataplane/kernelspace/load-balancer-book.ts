/** The load balancers of the host as HNS has them: by ID, by frontend of one family, and by the endpoints that they name. No I/O. */
import type { HcnLoadBalancer } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { IpFamily } from "../../net/ip.ts";
import { keysOf } from "./frontend-keys.ts";

export class LoadBalancerBook {
  readonly #family: IpFamily;
  readonly #byId = new Map<Guid, HcnLoadBalancer>();
  readonly #byKey = new Map<string, Guid>();
  /** How many load balancers name an endpoint. */
  readonly #named = new Map<Guid, number>();

  constructor(family: IpFamily, loadBalancers: Iterable<HcnLoadBalancer> = []) {
    this.#family = family;
    for (const one of loadBalancers) this.note(one);
  }

  ids(): Iterable<Guid> {
    return this.#byId.keys();
  }

  all(): Iterable<HcnLoadBalancer> {
    return this.#byId.values();
  }

  has(id: Guid): boolean {
    return this.#byId.has(id);
  }

  get(id: Guid): HcnLoadBalancer | undefined {
    return this.#byId.get(id);
  }

  /** What answers at a frontend. */
  at(key: string): HcnLoadBalancer | undefined {
    const id = this.#byKey.get(key);
    return id === undefined ? undefined : this.#byId.get(id);
  }

  /** The frontends at which this one answers. */
  keysOf(id: Guid): readonly string[] {
    const known = this.#byId.get(id);
    return known === undefined ? [] : keysOf(known, this.#family).filter((key) => this.#byKey.get(key) === id);
  }

  isNamed(endpoint: Guid): boolean {
    return this.#named.has(endpoint);
  }

  note(loadBalancer: HcnLoadBalancer): void {
    this.forget(loadBalancer.id);
    this.#byId.set(loadBalancer.id, loadBalancer);
    for (const key of keysOf(loadBalancer, this.#family)) this.#byKey.set(key, loadBalancer.id);
    for (const endpoint of new Set(loadBalancer.endpoints)) {
      this.#named.set(endpoint, (this.#named.get(endpoint) ?? 0) + 1);
    }
  }

  /** @returns what was noted. */
  forget(id: Guid): HcnLoadBalancer | undefined {
    const known = this.#byId.get(id);
    if (known === undefined) return undefined;
    this.#byId.delete(id);
    for (const key of keysOf(known, this.#family)) if (this.#byKey.get(key) === id) this.#byKey.delete(key);
    for (const endpoint of new Set(known.endpoints)) {
      const count = (this.#named.get(endpoint) ?? 0) - 1;
      if (count > 0) this.#named.set(endpoint, count);
      else this.#named.delete(endpoint);
    }
    return known;
  }
}
