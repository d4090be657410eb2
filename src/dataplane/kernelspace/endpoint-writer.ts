/** Makes and deletes the endpoints that load balancers name for addresses elsewhere. Reference windows.md §3.6. */
import type { HcnEndpoint } from "../../kernel/hcn/documents.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { IpAddress } from "../../net/ip.ts";
import { type HostState, isOverlay } from "./host-state.ts";
import { isOurRemoteEndpoint } from "./ownership.ts";
import { providerOf } from "./plan-service-port.ts";
import { remoteMac } from "./remote-mac.ts";

export interface EndpointWriterOptions {
  readonly hcn: Hcn;
  readonly nodeIP: IpAddress;
  /** As Node writes it; empty where no overlay needs it. */
  readonly hostMac: string;
  /** In the form of {@link HcnEndpoint.mac}: every interface's. */
  readonly hostMacs: ReadonlySet<string>;
}

export class EndpointWriter {
  readonly #options: EndpointWriterOptions;

  constructor(options: EndpointWriterOptions) {
    this.#options = options;
  }

  /** For an address of another node, or outside of the network. */
  async createRemote(host: HostState, address: IpAddress): Promise<void> {
    const { nodeIP } = this.#options;
    const { network } = host;
    const providerAddress = isOverlay(network) ? (providerOf(address, network) ?? nodeIP) : undefined;
    await this.#create(host, { address, mac: remoteMac(address), isRemote: true, ...provider(providerAddress) });
  }

  /** For a cluster IP on an overlay. */
  async createVip(host: HostState, address: IpAddress): Promise<void> {
    const { nodeIP, hostMac } = this.#options;
    await this.#create(host, { address, mac: hostMac, isRemote: true, providerAddress: nodeIP });
  }

  /** For the source VIP on an overlay, when the CNI plugin has not made it. */
  async createSourceVip(host: HostState, address: IpAddress): Promise<void> {
    await this.#create(host, { address, mac: this.#options.hostMac, isRemote: false });
  }

  /** Those at an address that are ours to delete. */
  ownAt(host: HostState, address: IpAddress): readonly HcnEndpoint[] {
    return host.endpoints.allAt(address).filter((endpoint) => this.isOurs(host, endpoint));
  }

  isOurs(host: HostState, endpoint: HcnEndpoint): boolean {
    return isOurRemoteEndpoint(endpoint, host.family, this.#options.hostMacs);
  }

  async remove(host: HostState, { id }: HcnEndpoint): Promise<void> {
    await this.#options.hcn.delete("Endpoint", id);
    host.endpoints.forget(id);
  }

  async #create(
    host: HostState,
    settings: { address: IpAddress; mac: string; isRemote: boolean; providerAddress?: IpAddress },
  ): Promise<void> {
    host.endpoints.note(await this.#options.hcn.createEndpoint({ network: host.network.id, ...settings }));
  }
}

const provider = (providerAddress: IpAddress | undefined) => (providerAddress === undefined ? {} : { providerAddress });
