/** The endpoints of the cluster's network as HNS has them, by ID and by address. No I/O. Reference windows.md §3.2. */
import type { HcnEndpoint } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { IpAddress } from "../../net/ip.ts";

export class EndpointBook {
  readonly #byId = new Map<Guid, HcnEndpoint>();
  /** Almost every address has one endpoint. Several are in the order in which they were noted. */
  readonly #byAddress = new Map<IpAddress, readonly HcnEndpoint[]>();

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

  /** The one that load balancers are to name: a local endpoint before remote ones, then the first. */
  at(address: IpAddress): HcnEndpoint | undefined {
    const all = this.#byAddress.get(address);
    return all?.find(({ isRemote }) => !isRemote) ?? all?.[0];
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
    for (const address of endpoint.addresses) {
      const rest = this.allAt(address).filter((other) => other.id !== id);
      if (rest.length === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, rest);
    }
    return endpoint;
  }
}
