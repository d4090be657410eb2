/** Makes and deletes the endpoints that load balancers name for addresses elsewhere. Reference windows.md §3.6. */
import type { EndpointSettings, HcnEndpoint } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { SyncNotes } from "../shared/reconciler.ts";
import { type HostState, isOverlay } from "./host-state.ts";
import { isOurRemoteEndpoint, remoteMac } from "./ownership.ts";
import { providerOf } from "./plan-service-port.ts";

interface EndpointWriterOptions {
  readonly hcn: Hcn;
  readonly nodeIP: IpAddress;
  /** As Node writes it; empty where no overlay needs it. */
  readonly hostMac: string;
  /** In the form of {@link HcnEndpoint.mac}: every interface's. */
  readonly hostMacs: ReadonlySet<string>;
}

/** Each makes one endpoint, and notes it. */
export interface EndpointMaker {
  /** For an address of another node, or outside of the network. */
  remote(address: IpAddress): Promise<void>;
  /** For a cluster IP on an overlay. */
  vip(address: IpAddress): Promise<void>;
  /** For the source VIP on an overlay, when the CNI plugin has not made it. */
  sourceVip(address: IpAddress): Promise<void>;
}

export class EndpointWriter {
  readonly #options: EndpointWriterOptions;

  /** HNS says of an endpoint what it was sent, so that what it says of others can be believed. */
  #tellsProviders = true;

  constructor(options: EndpointWriterOptions) {
    this.#options = options;
  }

  /** Makes endpoints on the cluster's network, which is opened once for all of them. */
  async making<T>(host: HostState, notes: SyncNotes, run: (make: EndpointMaker) => Promise<T>): Promise<T> {
    const { hcn, nodeIP, hostMac } = this.#options;
    const { network } = host;
    return await hcn.makeEndpoints(network.id, async (create) => {
      const make = async (settings: Omit<EndpointSettings, "network">): Promise<void> => {
        const made = await create({ network: network.id, ...settings });
        if (made.providerAddress !== settings.providerAddress) this.#tellsProviders = false;
        notes.count("endpoints made");
        host.endpoints.note(made);
      };
      return await run({
        remote(address) {
          const carrier = isOverlay(network) ? { providerAddress: providerOf(address, network) ?? nodeIP } : {};
          return make({ address, mac: remoteMac(address), isRemote: true, ...carrier });
        },
        vip: (address) => make({ address, mac: hostMac, isRemote: true, providerAddress: nodeIP }),
        sourceVip: (address) => make({ address, mac: hostMac, isRemote: false }),
      });
    });
  }

  /** Those at an address that are ours to delete. */
  ownAt(host: HostState, address: IpAddress): readonly HcnEndpoint[] {
    return host.endpoints.allAt(address).filter((endpoint) => this.isOurs(host, endpoint));
  }

  /**
   * Finds those of ours on an overlay that lead to another node than the one which has the address: they were made before the CNI
   * plugin said which one that is. @returns their addresses.
   */
  findAstray(host: HostState, reasonFor: (address: IpAddress) => "local" | "remote" | "vip" | undefined): IpAddress[] {
    const { nodeIP } = this.#options;
    const found: IpAddress[] = [];
    const astray = new Set<Guid>();
    if (!isOverlay(host.network) || !this.#tellsProviders) return found;
    for (const endpoint of host.endpoints.all()) {
      const [address] = endpoint.addresses;
      if (address === undefined || endpoint.providerAddress === undefined || !this.isOurs(host, endpoint)) continue;
      const wanted = reasonFor(address) === "vip" ? nodeIP : (providerOf(address, host.network) ?? nodeIP);
      if (endpoint.providerAddress === wanted) continue;
      astray.add(endpoint.id);
      found.push(address);
    }
    host.astray = astray;
    return found;
  }

  isOurs(host: HostState, endpoint: HcnEndpoint): boolean {
    return isOurRemoteEndpoint(endpoint, host.family, this.#options.hostMacs);
  }

  async remove(host: HostState, notes: SyncNotes, { id }: HcnEndpoint): Promise<void> {
    await this.#options.hcn.delete("Endpoint", id);
    notes.count("endpoints deleted");
    host.endpoints.forget(id);
  }
}
