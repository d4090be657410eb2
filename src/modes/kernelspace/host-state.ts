/** The state of HNS after the last read and our own writes. Reference windows.md §3.1, §3.2, windows-practice.md §8. */
import { hash } from "node:crypto";
import { type Cidr, cidrContains, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { keysOf } from "./frontend-keys.ts";
import { type HcnEndpoint, type HcnLoadBalancer, type HcnNetwork, MAP_EXTERNAL_IP } from "./hcn/documents.ts";
import type { Guid } from "./hcn/guid.ts";
import type { Hcn } from "./hcn/hcn.ts";
import type { KernelspaceOptions } from "./options.ts";

/** A load balancer that another program changed. */
interface ChangedLoadBalancer {
  readonly before: HcnLoadBalancer;
  readonly now: HcnLoadBalancer;
}

/** Changes by other programs that the reads of HNS found, besides what they put in doubt. */
interface HostNews {
  /** Frontends whose load balancer is gone. */
  readonly lost: Set<string>;
  /** Load balancers that were changed. */
  readonly changed: ChangedLoadBalancer[];
  /** The endpoint that gets health checks has appeared or is another one. */
  hasNewRoot: boolean;
  /** Endpoints were added or removed. */
  hasEndpoints: boolean;
}

/** What a sync must check besides what changed: what an earlier one failed to do, and what other programs changed. */
class HostDoubt {
  readonly frontends = new Set<string>();
  /** Addresses whose endpoint was added, removed or could not be created: their load balancers are checked, too. */
  readonly addresses = new Set<IpAddress>();
  /** Addresses of which only the endpoints are checked: a change of one Service is no work for others with the same pod. */
  readonly endpointsAt = new Set<IpAddress>();
  /** Load balancers to delete. */
  readonly leftovers = new Set<Guid>();
  /** Addresses with an endpoint to delete that a load balancer still names: left to the next sync that does anything. */
  readonly stillNamed = new Set<IpAddress>();

  get isNothing(): boolean {
    return this.frontends.size + this.addresses.size + this.endpointsAt.size + this.leftovers.size === 0;
  }
}

interface HostNames extends Pick<KernelspaceOptions, "networkName" | "rootName"> {
  readonly config: Pick<KernelspaceOptions["config"], "family">;
}

/** Port-mapping flags that kube-proxy or this program writes (windows.md §2.6). */
const WRITTEN_FLAGS: ReadonlySet<number> = new Set([0, 12, 16, 18, 28]);
const WRITTEN_DISTRIBUTIONS: ReadonlySet<number> = new Set([0, 2]);

export class HostState {
  readonly family: IpFamily;
  network: HcnNetwork;
  /** Endpoints of the cluster's network, by address. */
  readonly endpoints = new HostIndex<HcnEndpoint>(({ addresses }) => new Set(addresses));
  /** By frontend, and by the endpoints that they name. */
  readonly loadBalancers: HostIndex<HcnLoadBalancer>;
  /** Endpoints that lead to the wrong node: replacements must be created before these are deleted. */
  astray: ReadonlySet<Guid> = new Set();
  /** On an overlay, nodes were added or removed since {@link network} was read. */
  hasChangedNetwork = false;
  /** What the next write must check. May be added to. */
  doubt = new HostDoubt();
  /** The endpoint of the node itself, for health checks. */
  root: Guid | undefined;
  readonly #names: HostNames;
  /** Endpoints of other networks, unreadable ones included: load balancers that lead there are not ours. */
  #elsewhere: ReadonlySet<Guid>;
  /** Digests of the first API version's view of load balancers, taken when their settings were last known. */
  readonly #seen = new WeakMap<HcnLoadBalancer, string>();
  #news: HostNews = noNews();

  private constructor(names: HostNames, network: HcnNetwork, elsewhere: ReadonlySet<Guid>) {
    this.#names = names;
    this.family = names.config.family;
    this.network = network;
    this.loadBalancers = new HostIndex((one) => new Set([...keysOf(one, this.family), ...one.endpoints]));
    this.#elsewhere = elsewhere;
  }

  /** Reads everything: three calls for each object of the host, and one for each kind. @throws Error if there is no such network. */
  static async read(hcn: Hcn, names: HostNames, signal?: AbortSignal): Promise<HostState> {
    const { networkName, rootName } = names;
    const network = await hcn.named("Network", networkName, signal);
    if (network === undefined) throw new Error(missingNetworkText(networkName));
    const ours = new Set(await hcn.ids("Endpoint", { VirtualNetwork: network.id }));
    const elsewhere = new Set(await idsElsewhere(hcn, ours));
    const endpoints = await hcn.all("Endpoint", undefined, signal);
    // A recreated network leaves orphaned endpoints of the old one behind. Load balancers that name them may be ours.
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

  /** The endpoint that load balancers should name: a local one first, and one that leads to the wrong node last. */
  endpointAt(address: IpAddress): HcnEndpoint | undefined {
    const all = this.endpoints.allAt(address);
    return all.find(({ isRemote }) => !isRemote) ?? all.find(({ id }) => !this.astray.has(id)) ?? all[0];
  }

  /** Whether an address has an endpoint, not counting those that lead to the wrong node. */
  isServed(address: IpAddress): boolean {
    return this.endpoints.allAt(address).some(({ id }) => !this.astray.has(id));
  }

  /** Whether a load balancer names the endpoint. */
  isNamed(endpoint: Guid): boolean {
    return this.loadBalancers.allAt(endpoint).length > 0;
  }

  /** The frontends that a load balancer serves. */
  frontendsOf(id: Guid): readonly string[] {
    const known = this.loadBalancers.get(id);
    if (known === undefined) return [];
    return keysOf(known, this.family).filter((key) => this.loadBalancers.at(key) === known);
  }

  /**
   * Whether a load balancer certainly belongs to another program, so that it is left alone even at a frontend of a
   * Service: it leads to another network, has several addresses or ports, or has another schema version than ours.
   */
  isForeign({ endpoints, frontendVips, mappings, otherSchema }: HcnLoadBalancer): boolean {
    if (otherSchema !== undefined || frontendVips.length > 1 || mappings.length > 1) return true;
    // An endpoint created between the two listings of one read is in both.
    return endpoints.some((id) => this.#elsewhere.has(id) && !this.#isOurs(id));
  }

  /** Whether a load balancer that no Service wants may be deleted, because kube-proxy or an earlier run left it. */
  isLeftover(one: HcnLoadBalancer, serviceCidrs: readonly Cidr[]): boolean {
    const { endpoints, frontendVips, mappings } = one;
    if (this.isForeign(one)) return false;
    const [mapping] = mappings;
    const hasOurs = endpoints.some((id) => this.#isOurs(id));
    // A failed creation leaves one without mappings (kubernetes #141488).
    if (mapping === undefined) return endpoints.length === 0 ? frontendVips.length === 0 : hasOurs;
    if (!WRITTEN_FLAGS.has(mapping.flags) || !WRITTEN_DISTRIBUTIONS.has(mapping.distribution)) return false;
    if (hasOurs) return true;
    // Its endpoints are all gone: its address or its flags must tell.
    const [vip] = frontendVips;
    if (vip !== undefined && serviceCidrs.some((cidr) => cidrContains(cidr, vip))) return true;
    return (mapping.flags & MAP_EXTERNAL_IP) !== 0;
  }

  #isOurs(id: Guid): boolean {
    return this.endpoints.has(id) || id === this.root;
  }

  /** Takes what is in doubt; the caller must add again what it does not settle. */
  takeDoubt(): HostDoubt {
    const doubt = this.doubt;
    this.doubt = new HostDoubt();
    return doubt;
  }

  /**
   * Takes the changes found since the last call. They are kept here instead of being returned, because HNS may fail in
   * the middle of a read: what it saw until then is already recorded, and no later read would report it.
   */
  takeNews(): HostNews {
    const news = this.#news;
    this.#news = noNews();
    return news;
  }

  /**
   * Checks whether other programs changed the state of HNS: three calls if not. The findings are in {@link takeNews}.
   *
   * @param isThorough also compares settings of load balancers, with one more call. @param signal ends it between two calls.
   * @returns whether the network is still the known one.
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

  /** Finds added and removed endpoints: one call, and three for each that is new to both families. */
  async refreshEndpoints(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    const found = await hcn.ids("Endpoint", { VirtualNetwork: this.network.id });
    const read = (id: Guid) => hcn.known("Endpoint", id);
    await this.#refresh(hcn, this.endpoints, found, read, signal, ({ addresses }) => {
      for (const address of addresses) this.doubt.addresses.add(address);
      if (addresses.length > 0) this.#news.hasEndpoints = true;
    });
  }

  /** Finds the endpoint of the node itself: no call if it is a known one of the cluster's network. */
  async #refreshRoot(hcn: Hcn): Promise<void> {
    const { rootName } = this.#names;
    if (rootName === undefined || (this.root !== undefined && this.endpoints.has(this.root))) return;
    const found = (await hcn.named("Endpoint", rootName))?.id;
    if (found === this.root) return;
    this.root = found;
    this.#news.hasNewRoot = found !== undefined;
  }

  /** Finds added and removed load balancers: one call, and three for each that is new to both families. */
  async refreshLoadBalancers(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    let isElsewhereKnown = true;
    const found = await hcn.ids("LoadBalancer");
    const read = (id: Guid) => hcn.known("LoadBalancer", id);
    await this.#refresh(hcn, this.loadBalancers, found, read, signal, (one, isGone) => {
      if (isGone) for (const key of keysOf(one, this.family)) this.#news.lost.add(key);
      else if (!one.endpoints.every((endpoint) => this.#isOurs(endpoint))) isElsewhereKnown = false;
    });
    if (isElsewhereKnown) return;
    // Other programs may have created endpoints on their networks, too.
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
      // An unreadable document is not read again.
      if (index.has(id) || hcn.isUnread(id)) continue;
      signal?.throwIfAborted();
      const object = await read(id);
      if (object === undefined) continue;
      index.note(object);
      onNews(object, false);
    }
  }

  /**
   * Finds load balancers that other programs changed under the same ID. The first version of the HNS API lists all of them with their
   * settings in one call, where HCN needs three for each. Its view lacks some fields and has others, so it is only compared with itself:
   * a load balancer whose view differs from the last one is read again. Reference windows-hcn.md §4.5.
   */
  async #refreshBehaviour(hcn: Hcn): Promise<void> {
    for (const [id, text] of await hcn.policyLists()) {
      const known = this.loadBalancers.get(id);
      if (known === undefined) continue;
      const digest = hash("sha1", text, "base64");
      const before = this.#seen.get(known);
      // If HNS does not answer, the old digest stays, so the next check reads it again. A deleted one is noticed by its ID.
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

/** The endpoints of the host except ours. */
async function idsElsewhere(hcn: Hcn, ours: ReadonlySet<Guid>): Promise<ReadonlySet<Guid>> {
  return new Set((await hcn.ids("Endpoint")).filter((id) => !ours.has(id)));
}

/** Says what to check if the network of the cluster is missing. */
export function missingNetworkText(name: string): string {
  return `HNS has no network "${name}": check winkernel.networkName (--network-name, KUBE_NETWORK), and whether the CNI plugin has made it`;
}

/** Whether the network itself carries addresses of pods between nodes. */
export function isOverlay({ type }: HcnNetwork): boolean {
  return type.toLowerCase() === "overlay";
}

/** Objects of HNS by ID and by lookup keys, such as the frontends of a load balancer or the addresses of an endpoint. */
class HostIndex<T extends { readonly id: Guid }> {
  readonly #keysOf: (object: T) => Iterable<string>;
  readonly #byId = new Map<Guid, T>();
  /** Almost every key has one object. Several are in the order of {@link note}. */
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
