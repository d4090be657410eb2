/** The endpoints of the cluster's network as HNS has them, by ID and by address. No I/O. Reference windows.md §3.2. */
import type { HcnEndpoint } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { IpAddress } from "../../net/ip.ts";

export class EndpointBook {
  readonly #byId = new Map<Guid, HcnEndpoint>();
  /** Almost every address has one endpoint. Several are in the order in which they were noted. */
  readonly #byAddress = new Map<IpAddress, readonly HcnEndpoint[]>();

  readonly #astray = new Set<Guid>();

  constructor(endpoints: Iterable<HcnEndpoint> = []) {
    for (const endpoint of endpoints) this.note(endpoint);
  }

  ids(): Iterable<Guid> {
    return this.#byId.keys();
  }

  all(): Iterable<HcnEndpoint> {
    return this.#byId.values();
  }

  has(id: Guid): boolean {
    return this.#byId.has(id);
  }

  get(id: Guid): HcnEndpoint | undefined {
    return this.#byId.get(id);
  }

  /** The one that load balancers are to name: a local endpoint before remote ones, a right one before one that leads astray. */
  at(address: IpAddress): HcnEndpoint | undefined {
    const all = this.#byAddress.get(address);
    return all?.find(({ isRemote }) => !isRemote) ?? all?.find(({ id }) => !this.#astray.has(id)) ?? all?.[0];
  }

  /** Whether an address has an endpoint, one that leads astray not counted. */
  isServed(address: IpAddress): boolean {
    return this.allAt(address).some(({ id }) => !this.#astray.has(id));
  }

  /** Leads to another node than the one that has the address now: another endpoint must be made before this one goes. */
  noteAstray(id: Guid, isAstray: boolean): void {
    if (isAstray) this.#astray.add(id);
    else this.#astray.delete(id);
  }

  /** Every endpoint of an address. */
  allAt(address: IpAddress): readonly HcnEndpoint[] {
    return this.#byAddress.get(address) ?? [];
  }

  note(endpoint: HcnEndpoint): void {
    this.forget(endpoint.id);
    this.#byId.set(endpoint.id, endpoint);
    for (const address of endpoint.addresses) this.#byAddress.set(address, [...this.allAt(address), endpoint]);
  }

  /** @returns what was noted. */
  forget(id: Guid): HcnEndpoint | undefined {
    const endpoint = this.#byId.get(id);
    if (endpoint === undefined) return undefined;
    this.#byId.delete(id);
    this.#astray.delete(id);
    for (const address of endpoint.addresses) {
      const rest = this.allAt(address).filter((other) => other.id !== id);
      if (rest.length === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, rest);
    }
    return endpoint;
  }
}
