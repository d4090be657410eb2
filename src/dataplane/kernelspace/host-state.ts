/** What HNS has, as the last look and our own writes left it. Reference windows.md §3.1, §3.2, windows-practice.md §8. */
import { hash } from "node:crypto";
import {
  type HcnEndpoint,
  type HcnLoadBalancer,
  type HcnNetwork,
  MAP_EXTERNAL_IP,
} from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import { type Cidr, cidrContains, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { keysOf } from "./frontend-keys.ts";
import type { KernelspaceOptions } from "./options.ts";

/** A load balancer that is not what it was. */
interface ChangedLoadBalancer {
  readonly before: HcnLoadBalancer;
  readonly now: HcnLoadBalancer;
}

/** What looks have found to be other than it was known to be, besides what is in doubt for it. */
interface HostNews {
  /** Frontends whose load balancer is gone. */
  readonly lost: Set<string>;
  /** Load balancers that are not what they were. */
  readonly changed: ChangedLoadBalancer[];
  /** The endpoint that health checks are led to is there now, or is another one. */
  hasNewRoot: boolean;
  /** Endpoints have come or gone. */
  hasEndpoints: boolean;
}

/** What a sync must look at besides what changed: what an earlier one did not do, and what others have changed. */
class HostDoubt {
  readonly frontends = new Set<string>();
  /** Whose endpoint has come or gone, or could not be made: what names it is looked at, too. */
  readonly addresses = new Set<IpAddress>();
  /** Addresses of which only the endpoints are looked at: of many Services that lead to one pod, others need not change. */
  readonly endpointsAt = new Set<IpAddress>();
  /** Load balancers that are to go. */
  readonly leftovers = new Set<Guid>();
  /** Addresses with an endpoint that is to go, and that a load balancer still names: for the next sync that does anything. */
  readonly stillNamed = new Set<IpAddress>();

  get isNothing(): boolean {
    return this.frontends.size + this.addresses.size + this.endpointsAt.size + this.leftovers.size === 0;
  }
}

interface HostNames extends Pick<KernelspaceOptions, "networkName" | "rootName"> {
  readonly config: Pick<KernelspaceOptions["config"], "family">;
}

/** Port-mapping flags that kube-proxy and this program write (windows.md §2.6). */
const WRITTEN_FLAGS: ReadonlySet<number> = new Set([0, 12, 16, 18, 28]);
const WRITTEN_DISTRIBUTIONS: ReadonlySet<number> = new Set([0, 2]);

export class HostState {
  readonly family: IpFamily;
  network: HcnNetwork;
  /** Of the cluster's network, by address. */
  readonly endpoints = new HostIndex<HcnEndpoint>(({ addresses }) => new Set(addresses));
  /** By frontend, and by the endpoints that they name. */
  readonly loadBalancers: HostIndex<HcnLoadBalancer>;
  /** Endpoints that lead to another node than the one that has the address now: others must be made before these go. */
  astray: ReadonlySet<Guid> = new Set();
  /** On an overlay, nodes have come or gone since {@link network} was read. */
  hasChangedNetwork = false;
  /** What the next writing does. May be added to. */
  doubt = new HostDoubt();
  /** The endpoint of the node itself, for health checks. */
  root: Guid | undefined;
  readonly #names: HostNames;
  /** Endpoints of other networks, also those that could not be read: what leads there is not ours. */
  #elsewhere: ReadonlySet<Guid>;
  /** Digests of what load balancers do, as it was seen when they were last known to be so. */
  readonly #seen = new WeakMap<HcnLoadBalancer, string>();
  #news: HostNews = noNews();

  private constructor(names: HostNames, network: HcnNetwork, elsewhere: ReadonlySet<Guid>) {
    this.#names = names;
    this.family = names.config.family;
    this.network = network;
    this.loadBalancers = new HostIndex((one) => new Set([...keysOf(one, this.family), ...one.endpoints]));
    this.#elsewhere = elsewhere;
  }

  /** Looks at everything: three calls for each object of the host, and one for each kind. @throws Error when there is no such network. */
  static async read(hcn: Hcn, names: HostNames, signal?: AbortSignal): Promise<HostState> {
    const { networkName, rootName } = names;
    const network = await hcn.named("Network", networkName, signal);
    if (network === undefined) throw new Error(missingNetworkText(networkName));
    const ours = new Set(await hcn.ids("Endpoint", { VirtualNetwork: network.id }));
    const elsewhere = new Set(await idsElsewhere(hcn, ours));
    const endpoints = await hcn.all("Endpoint", undefined, signal);
    // A network that was made again leaves endpoints of the old one behind: they are nowhere, and what names them may be ours.
    const networks = new Set(await hcn.ids("Network"));
    const host = new HostState(names, network, elsewhere);
    for (const one of endpoints) {
      if (one.network !== undefined && !networks.has(one.network)) elsewhere.delete(one.id);
      if (ours.has(one.id)) host.endpoints.note(one);
      if (one.name.toLowerCase() === rootName?.toLowerCase()) host.root ??= one.id;
    }
    for (const one of await hcn.all("LoadBalancer", undefined, signal)) host.loadBalancers.note(one);
    return host;
  }

  /** The endpoint that load balancers are to name: a local one before remote ones, a right one before one that leads astray. */
  endpointAt(address: IpAddress): HcnEndpoint | undefined {
    const all = this.endpoints.allAt(address);
    return all.find(({ isRemote }) => !isRemote) ?? all.find(({ id }) => !this.astray.has(id)) ?? all[0];
  }

  /** Whether an address has an endpoint, one that leads astray not counted. */
  isServed(address: IpAddress): boolean {
    return this.endpoints.allAt(address).some(({ id }) => !this.astray.has(id));
  }

  /** Whether a load balancer names the endpoint. */
  isNamed(endpoint: Guid): boolean {
    return this.loadBalancers.allAt(endpoint).length > 0;
  }

  /** The frontends at which a load balancer answers. */
  frontendsOf(id: Guid): readonly string[] {
    const known = this.loadBalancers.get(id);
    if (known === undefined) return [];
    return keysOf(known, this.family).filter((key) => this.loadBalancers.at(key) === known);
  }

  /**
   * Whether a load balancer is another program's for sure, so that it is not touched at a frontend of a Service either: it leads to
   * another network, has several addresses or ports, or is of another schema than ours.
   */
  isForeign({ endpoints, frontendVips, mappings, otherSchema }: HcnLoadBalancer): boolean {
    if (otherSchema !== undefined || frontendVips.length > 1 || mappings.length > 1) return true;
    // One that was made between the two lists of a look is in both.
    return endpoints.some((id) => this.#elsewhere.has(id) && !this.#isOurs(id));
  }

  /** Whether a load balancer that no Service wants is left by kube-proxy or by an earlier run, so that it may go. */
  isLeftover(one: HcnLoadBalancer, serviceCidrs: readonly Cidr[]): boolean {
    const { endpoints, frontendVips, mappings } = one;
    if (this.isForeign(one)) return false;
    const [mapping] = mappings;
    const hasOurs = endpoints.some((id) => this.#isOurs(id));
    // A failed creation leaves one without mappings (kubernetes #141488).
    if (mapping === undefined) return endpoints.length === 0 ? frontendVips.length === 0 : hasOurs;
    if (!WRITTEN_FLAGS.has(mapping.flags) || !WRITTEN_DISTRIBUTIONS.has(mapping.distribution)) return false;
    if (hasOurs) return true;
    // Its endpoints are all gone: where it answers, or how, must tell.
    const [vip] = frontendVips;
    if (vip !== undefined && serviceCidrs.some((cidr) => cidrContains(cidr, vip))) return true;
    return (mapping.flags & MAP_EXTERNAL_IP) !== 0;
  }

  #isOurs(id: Guid): boolean {
    return this.endpoints.has(id) || id === this.root;
  }

  /** What was in doubt until now; what is not settled must be added again. */
  takeDoubt(): HostDoubt {
    const doubt = this.doubt;
    this.doubt = new HostDoubt();
    return doubt;
  }

  /**
   * What looks have found since this was asked last. It is kept here, and not given by the looks, because HNS may fail in the middle of one:
   * what was seen until then is known, and will not be seen again.
   */
  takeNews(): HostNews {
    const news = this.#news;
    this.#news = noNews();
    return news;
  }

  /**
   * Looks whether others have changed what HNS has, in three calls where they have not; what it finds is in the news.
   *
   * @param isThorough also at what load balancers do, which is one call more. @param signal ends it between two calls.
   * @returns whether the host's network is the one that is known.
   */
  async verify(hcn: Hcn, isThorough: boolean, signal: AbortSignal): Promise<boolean> {
    const { id } = this.network;
    if (!(await hcn.ids("Network", { Name: this.#names.networkName })).includes(id)) return false;
    await this.refreshEndpoints(hcn, signal);
    await this.refreshLoadBalancers(hcn, signal);
    await this.#refreshRoot(hcn);
    if (isOverlay(this.network)) {
      this.hasChangedNetwork = JSON.stringify(await hcn.get("Network", id)) !== JSON.stringify(this.network);
    }
    if (isThorough) await this.#refreshBehaviour(hcn);
    return true;
  }

  /** Looks which endpoints have come and gone: one call, and three for each that is new to both families. */
  async refreshEndpoints(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    const found = await hcn.ids("Endpoint", { VirtualNetwork: this.network.id });
    const read = (id: Guid) => hcn.known("Endpoint", id);
    await this.#refresh(hcn, this.endpoints, found, read, signal, ({ addresses }) => {
      for (const address of addresses) this.doubt.addresses.add(address);
      if (addresses.length > 0) this.#news.hasEndpoints = true;
    });
  }

  /** Looks for the endpoint of the node itself: no call where it is on the cluster's network, and there. */
  async #refreshRoot(hcn: Hcn): Promise<void> {
    const { rootName } = this.#names;
    if (rootName === undefined || (this.root !== undefined && this.endpoints.has(this.root))) return;
    const found = (await hcn.named("Endpoint", rootName))?.id;
    if (found === this.root) return;
    this.root = found;
    this.#news.hasNewRoot = found !== undefined;
  }

  /** Looks which load balancers have come and gone: one call, and three for each that is new to both families. */
  async refreshLoadBalancers(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    let isElsewhereKnown = true;
    const found = await hcn.ids("LoadBalancer");
    const read = (id: Guid) => hcn.known("LoadBalancer", id);
    await this.#refresh(hcn, this.loadBalancers, found, read, signal, (one, isGone) => {
      if (isGone) for (const key of keysOf(one, this.family)) this.#news.lost.add(key);
      else if (!one.endpoints.every((endpoint) => this.#isOurs(endpoint))) isElsewhereKnown = false;
    });
    if (isElsewhereKnown) return;
    // Other programs make endpoints on their networks, too.
    this.#elsewhere = await idsElsewhere(hcn, new Set(await hcn.ids("Endpoint", { VirtualNetwork: this.network.id })));
  }

  /** Forgets what is gone, and reads what is new. */
  async #refresh<T extends { readonly id: Guid }>(
    hcn: Hcn,
    index: HostIndex<T>,
    ids: readonly Guid[],
    read: (id: Guid) => Promise<T | undefined>,
    signal: AbortSignal | undefined,
    onNews: (object: T, isGone: boolean) => void,
  ): Promise<void> {
    const found = new Set(ids);
    for (const id of [...index.ids()]) {
      if (found.has(id)) continue;
      hcn.forget(id);
      const gone = index.forget(id);
      if (gone !== undefined) onNews(gone, true);
    }
    for (const id of found) {
      // What cannot be read now cannot be read later.
      if (index.has(id) || hcn.isUnread(id)) continue;
      signal?.throwIfAborted();
      const object = await read(id);
      if (object === undefined) continue;
      index.note(object);
      onNews(object, false);
    }
  }

  /**
   * Looks which load balancers others have changed under the same ID. The first version of HNS's interface lists all of them with what they
   * do, in one call, where HCN takes three for each. Its view lacks some fields and has others, so it is only compared with itself: what
   * says something else than the last time is read again. Reference windows-hcn.md §4.5.
   */
  async #refreshBehaviour(hcn: Hcn): Promise<void> {
    for (const [id, text] of await hcn.policyLists()) {
      const known = this.loadBalancers.get(id);
      if (known === undefined) continue;
      const digest = hash("sha1", text, "base64");
      const before = this.#seen.get(known);
      // Where HNS does not answer, it is suspect the next time as well. What is gone is seen by its ID.
      const now = before === undefined || before === digest ? known : ((await hcn.get("LoadBalancer", id)) ?? known);
      const hasChanged = JSON.stringify(now) !== JSON.stringify(known);
      if (hasChanged) {
        this.loadBalancers.note(now);
        this.#news.changed.push({ before: known, now });
      }
      this.#seen.set(hasChanged ? now : known, digest);
    }
  }
}

const noNews = (): HostNews => ({ lost: new Set(), changed: [], hasNewRoot: false, hasEndpoints: false });

/** The endpoints of the host without ours. */
async function idsElsewhere(hcn: Hcn, ours: ReadonlySet<Guid>): Promise<ReadonlySet<Guid>> {
  return new Set((await hcn.ids("Endpoint")).filter((id) => !ours.has(id)));
}

/** Says what to look at when the network of the cluster is not there. Pure. */
export function missingNetworkText(name: string): string {
  return `HNS has no network "${name}": check winkernel.networkName (--network-name, KUBE_NETWORK), and whether the CNI plugin has made it`;
}

/** Whether addresses of pods are carried between nodes by the network itself. Pure. */
export function isOverlay({ type }: HcnNetwork): boolean {
  return type.toLowerCase() === "overlay";
}

/** Objects of HNS by ID, and by what they are looked up by: the frontends of a load balancer, the addresses of an endpoint. */
class HostIndex<T extends { readonly id: Guid }> {
  readonly #keysOf: (object: T) => Iterable<string>;
  readonly #byId = new Map<Guid, T>();
  /** Almost every key has one object. Several are in the order in which they were noted. */
  readonly #byKey = new Map<string, readonly T[]>();

  /** @param keysOf the keys of an object, each once. */
  constructor(keysOf: (object: T) => Iterable<string>) {
    this.#keysOf = keysOf;
  }

  ids(): Iterable<Guid> {
    return this.#byId.keys();
  }

  all(): Iterable<T> {
    return this.#byId.values();
  }

  has(id: Guid): boolean {
    return this.#byId.has(id);
  }

  get(id: Guid): T | undefined {
    return this.#byId.get(id);
  }

  allAt(key: string): readonly T[] {
    return this.#byKey.get(key) ?? [];
  }

  /** The one that was noted last. */
  at(key: string): T | undefined {
    return this.allAt(key).at(-1);
  }

  note(object: T): void {
    this.forget(object.id);
    this.#byId.set(object.id, object);
    for (const key of this.#keysOf(object)) this.#byKey.set(key, [...this.allAt(key), object]);
  }

  /** @returns what was noted. */
  forget(id: Guid): T | undefined {
    const known = this.#byId.get(id);
    if (known === undefined) return undefined;
    this.#byId.delete(id);
    for (const key of this.#keysOf(known)) {
      const rest = this.allAt(key).filter((other) => other.id !== id);
      if (rest.length === 0) this.#byKey.delete(key);
      else this.#byKey.set(key, rest);
    }
    return known;
  }
}
