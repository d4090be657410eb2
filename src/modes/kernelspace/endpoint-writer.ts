/** Creates and deletes the remote endpoints that load balancers name. Reference windows.md §3.6. */

import type { IpAddress } from "../../net/ip.ts";
import type { SyncNotes } from "../shared/reconciler.ts";
import type { HcnEndpoint } from "./hcn/documents.ts";
import type { Guid } from "./hcn/guid.ts";
import { type HostState, isOverlay } from "./host-state.ts";
import type { KernelspaceOptions } from "./options.ts";
import { isOurRemoteEndpoint, remoteMac } from "./ownership.ts";
import { providerOf } from "./plan-service-port.ts";
import type { KernelspaceWanted } from "./wanted.ts";

/** The purpose: an address on another node or outside the network; on an overlay a cluster IP, or a source VIP that the CNI plugin did not create. */
type MadeFor = "remote" | "vip" | "source-vip";

/** Creates an endpoint and records it. */
export type MakeEndpoint = (address: IpAddress, reason: MadeFor) => Promise<void>;

export class EndpointWriter {
  readonly #options: KernelspaceOptions;

  /** HNS returns the provider address that it was sent, so what it says about other endpoints can be trusted. */
  #tellsProviders = true;

  constructor(options: KernelspaceOptions) {
    this.#options = options;
  }

  /** Creates endpoints on the cluster's network, which is opened once for all of them. */
  async making(host: HostState, notes: SyncNotes, run: (make: MakeEndpoint) => Promise<void>): Promise<void> {
    const { hcn, hostMac } = this.#options;
    const network = host.network.id;
    await hcn.makeEndpoints(network, (create) =>
      run(async (address, reason) => {
        const mac = reason === "remote" ? remoteMac(address) : hostMac;
        const providerAddress = this.#carrierOf(address, reason, host);
        const isRemote = reason !== "source-vip";
        const made = await create({ network, address, mac, isRemote, ...(providerAddress && { providerAddress }) });
        if (made.providerAddress !== providerAddress) this.#tellsProviders = false;
        notes.count("endpoints made");
        host.endpoints.note(made);
      }),
    );
  }

  /** On an overlay, the node that an endpoint leads to. */
  #carrierOf(address: IpAddress, reason: MadeFor, { network }: HostState): IpAddress | undefined {
    if (!isOverlay(network) || reason === "source-vip") return undefined;
    return (reason === "remote" ? providerOf(address, network) : undefined) ?? this.#options.config.nodeIP;
  }

  /** The endpoints at an address that we may delete. */
  ownAt(host: HostState, address: IpAddress): readonly HcnEndpoint[] {
    return host.endpoints.allAt(address).filter((endpoint) => this.isOurs(host, endpoint));
  }

  /**
   * Finds our endpoints on an overlay that lead to the wrong node: they were created before the CNI plugin said which
   * node has the address. Marks their addresses as to be checked.
   */
  findAstray(host: HostState, { of }: KernelspaceWanted): void {
    const astray = new Set<Guid>();
    if (!isOverlay(host.network) || !this.#tellsProviders) return;
    for (const endpoint of host.endpoints.all()) {
      const [address] = endpoint.addresses;
      if (address === undefined || endpoint.providerAddress === undefined || !this.isOurs(host, endpoint)) continue;
      const reason = of.endpoints.get(address)?.reason === "vip" ? "vip" : "remote";
      if (endpoint.providerAddress === this.#carrierOf(address, reason, host)) continue;
      astray.add(endpoint.id);
      host.doubt.addresses.add(address);
    }
    host.astray = astray;
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
