/** What HNS has, as the last look and our own writes left it. Reference windows.md §3.1, §3.2. */
import type { HcnEndpoint, HcnNetwork } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { EndpointBook } from "./endpoint-book.ts";
import { keysOf } from "./frontend-keys.ts";
import { LoadBalancerBook } from "./load-balancer-book.ts";
import type { ChangedLoadBalancer, Overview } from "./overview.ts";
import type { EndpointPlaces } from "./ownership.ts";

/** What looks have found to be other than it was known to be. */
interface HostNews {
  /** Frontends whose load balancer is gone. */
  readonly lost: ReadonlySet<string>;
  /** Load balancers that are not what they were. */
  readonly changed: readonly ChangedLoadBalancer[];
  /** Whose endpoint has come or gone. */
  readonly addresses: ReadonlySet<IpAddress>;
  /** The endpoint that health checks are led to is there now, or is another one. */
  readonly hasNewRoot: boolean;
}

export class HostState implements EndpointPlaces {
  readonly family: IpFamily;
  network: HcnNetwork;
  readonly endpoints: EndpointBook;
  readonly loadBalancers: LoadBalancerBook;
  /** Endpoints of other networks, also those that could not be read: what leads there is not ours. */
  #elsewhere: ReadonlySet<Guid>;
  /** The endpoint of the node itself, for health checks. */
  root: Guid | undefined;

  #unread: readonly Guid[] = [];
  #lost = new Set<string>();
  #changed: ChangedLoadBalancer[] = [];
  #addresses = new Set<IpAddress>();
  #hasNewRoot = false;

  private constructor(parts: {
    family: IpFamily;
    network: HcnNetwork;
    endpoints: EndpointBook;
    loadBalancers: LoadBalancerBook;
    elsewhere: ReadonlySet<Guid>;
    root: Guid | undefined;
  }) {
    this.family = parts.family;
    this.network = parts.network;
    this.endpoints = parts.endpoints;
    this.loadBalancers = parts.loadBalancers;
    this.#elsewhere = parts.elsewhere;
    this.root = parts.root;
  }

  /**
   * Looks at everything: three calls for each object of the host, and one for each kind.
   *
   * @param rootName of the endpoint that health checks are led to; undefined for none.
   * @throws Error when there is no such network.
   */
  static async read(
    hcn: Hcn,
    { family, networkName, rootName }: { family: IpFamily; networkName: string; rootName: string | undefined },
    signal?: AbortSignal,
  ): Promise<HostState> {
    const network = await hcn.networkNamed(networkName, signal);
    if (network === undefined) throw new Error(missingNetworkText(networkName));
    const ours = new Set(await hcn.endpointIds(network.id));
    const elsewhere = new Set(await idsElsewhere(hcn, ours));
    const endpoints = await hcn.endpoints(undefined, signal);
    // A network that was made again leaves endpoints of the old one behind: they are nowhere, and what names them may be ours.
    const networks = new Set(await hcn.networkIds());
    for (const one of endpoints) if (one.network !== undefined && !networks.has(one.network)) elsewhere.delete(one.id);
    const loadBalancers = await hcn.loadBalancers(signal);
    const isRoot = ({ name }: HcnEndpoint) => name.toLowerCase() === rootName?.toLowerCase();
    return new HostState({
      family,
      network,
      endpoints: new EndpointBook(endpoints.filter(({ id }) => ours.has(id))),
      loadBalancers: new LoadBalancerBook(family, loadBalancers),
      elsewhere,
      root: rootName === undefined ? undefined : endpoints.find(isRoot)?.id,
    });
  }

  isOurs(id: Guid): boolean {
    return this.endpoints.has(id) || id === this.root;
  }

  isElsewhere(id: Guid): boolean {
    return this.#elsewhere.has(id) && id !== this.root;
  }

  /** Load balancers whose documents could not be read, as the last look at IDs found them. */
  get unreadLoadBalancers(): readonly Guid[] {
    return this.#unread;
  }

  /**
   * What looks have found since this was asked last. It is kept here, and not given by the looks, because HNS may fail in the middle of one:
   * what was seen until then is known, and will not be seen again.
   */
  takeNews(): HostNews {
    const news = {
      lost: this.#lost,
      changed: this.#changed,
      addresses: this.#addresses,
      hasNewRoot: this.#hasNewRoot,
    };
    this.#lost = new Set();
    this.#changed = [];
    this.#addresses = new Set();
    this.#hasNewRoot = false;
    return news;
  }

  /** Looks which endpoints have come and gone: one call, and three for each that is new to both families. */
  async refreshEndpoints(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    const found = new Set(await hcn.endpointIds(this.network.id));
    for (const id of [...this.endpoints.ids()]) {
      if (found.has(id)) continue;
      hcn.forget(id);
      for (const address of this.endpoints.forget(id)?.addresses ?? []) this.#addresses.add(address);
    }
    for (const id of found) {
      if (this.endpoints.has(id) || hcn.isUnread(id)) continue;
      signal?.throwIfAborted();
      const endpoint = await hcn.knownEndpoint(id);
      if (endpoint === undefined) continue;
      this.endpoints.note(endpoint);
      for (const address of endpoint.addresses) this.#addresses.add(address);
    }
  }

  /** Looks for the endpoint of the node itself: no call where it is on the cluster's network, and there. */
  async refreshRoot(hcn: Hcn, rootName: string | undefined): Promise<void> {
    if (rootName === undefined || (this.root !== undefined && this.endpoints.has(this.root))) return;
    const found = (await hcn.endpointNamed(rootName))?.id;
    if (found === this.root) return;
    this.root = found;
    this.#hasNewRoot = found !== undefined;
  }

  /** Looks which load balancers have come and gone: one call, and three for each that is new to both families. */
  async refreshLoadBalancers(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    const found = new Set(await hcn.loadBalancerIds());
    for (const id of [...this.loadBalancers.ids()]) {
      if (found.has(id)) continue;
      hcn.forget(id);
      const gone = this.loadBalancers.forget(id);
      if (gone !== undefined) for (const key of keysOf(gone, this.family)) this.#lost.add(key);
    }
    this.#unread = [...found].filter((id) => hcn.isUnread(id));
    let isElsewhereKnown = true;
    for (const id of found) {
      // What cannot be read now cannot be read later.
      if (this.loadBalancers.has(id) || hcn.isUnread(id)) continue;
      signal?.throwIfAborted();
      const loadBalancer = await hcn.knownLoadBalancer(id);
      if (loadBalancer === undefined) continue;
      this.loadBalancers.note(loadBalancer);
      if (!loadBalancer.endpoints.every((endpoint) => this.isOurs(endpoint))) isElsewhereKnown = false;
    }
    if (!isElsewhereKnown) await this.#refreshElsewhere(hcn);
  }

  /** Looks what load balancers do: see {@link Overview}. */
  async refreshBehaviour(hcn: Hcn, overview: Overview): Promise<void> {
    await overview.refresh(hcn, this.loadBalancers, (change) => this.#changed.push(change));
  }

  /** Other programs make endpoints on their networks, too. */
  async #refreshElsewhere(hcn: Hcn): Promise<void> {
    this.#elsewhere = await idsElsewhere(hcn, new Set(await hcn.endpointIds(this.network.id)));
  }
}

/** The endpoints of the host without ours. */
async function idsElsewhere(hcn: Hcn, ours: ReadonlySet<Guid>): Promise<ReadonlySet<Guid>> {
  return new Set((await hcn.endpointIds()).filter((id) => !ours.has(id)));
}

/** Says what to look at when the network of the cluster is not there. Pure. */
export function missingNetworkText(name: string): string {
  return `HNS has no network "${name}": check winkernel.networkName (--network-name, KUBE_NETWORK), and whether the CNI plugin has made it`;
}

/** Whether addresses of pods are carried between nodes by the network itself. Pure. */
export function isOverlay({ type }: HcnNetwork): boolean {
  return type.toLowerCase() === "overlay";
}
