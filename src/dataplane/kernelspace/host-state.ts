/** What HNS has, as the last look and our own writes left it. Reference windows.md §3.1, §3.2, windows-practice.md §8. */
import { hash } from "node:crypto";
import type { HcnEndpoint, HcnLoadBalancer, HcnNetwork } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { keysOf } from "./frontend-keys.ts";
import type { EndpointPlaces } from "./ownership.ts";

/** A load balancer that is not what it was. */
interface ChangedLoadBalancer {
  readonly before: HcnLoadBalancer;
  readonly now: HcnLoadBalancer;
}

/** One of the list of what load balancers do, as it was seen last. */
interface Seen {
  readonly digest: string;
  /** What was known then: our own writes replace it. */
  readonly known: HcnLoadBalancer;
}

interface Look {
  readonly networkName: string;
  /** Of the endpoint that health checks are led to; undefined for none. */
  readonly rootName: string | undefined;
  /** Also at what load balancers do, which is one call more. */
  readonly isThorough: boolean;
  /** Ends it between two calls. */
  readonly signal: AbortSignal;
}

/**
 * - `other-network`: the host's network is not the one that is known.
 * - `changed-network`: on an overlay, nodes have come or gone.
 */
export type Verification = "other-network" | "changed-network" | "same-network";

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
  /** Of the cluster's network, by address. */
  readonly endpoints: HostIndex<HcnEndpoint>;
  /** By frontend, and by the endpoints that they name. */
  readonly loadBalancers: HostIndex<HcnLoadBalancer>;
  /** Endpoints that lead to another node than the one that has the address now: others must be made before these go. */
  astray: ReadonlySet<Guid> = new Set();
  /** Endpoints of other networks, also those that could not be read: what leads there is not ours. */
  #elsewhere: ReadonlySet<Guid>;
  /** The endpoint of the node itself, for health checks. */
  root: Guid | undefined;

  #seen: ReadonlyMap<Guid, Seen> = new Map();
  #unread: readonly Guid[] = [];
  #lost = new Set<string>();
  #changed: ChangedLoadBalancer[] = [];
  #addresses = new Set<IpAddress>();
  #hasNewRoot = false;

  private constructor(parts: {
    family: IpFamily;
    network: HcnNetwork;
    endpoints: Iterable<HcnEndpoint>;
    loadBalancers: Iterable<HcnLoadBalancer>;
    elsewhere: ReadonlySet<Guid>;
    root: Guid | undefined;
  }) {
    this.family = parts.family;
    this.network = parts.network;
    this.endpoints = new HostIndex(({ addresses }) => new Set(addresses), parts.endpoints);
    const lookedUpBy = (one: HcnLoadBalancer) => new Set([...keysOf(one, parts.family), ...one.endpoints]);
    this.loadBalancers = new HostIndex(lookedUpBy, parts.loadBalancers);
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
    const network = await hcn.named("Network", networkName, signal);
    if (network === undefined) throw new Error(missingNetworkText(networkName));
    const ours = new Set(await hcn.ids("Endpoint", { VirtualNetwork: network.id }));
    const elsewhere = new Set(await idsElsewhere(hcn, ours));
    const endpoints = await hcn.all("Endpoint", undefined, signal);
    // A network that was made again leaves endpoints of the old one behind: they are nowhere, and what names them may be ours.
    const networks = new Set(await hcn.ids("Network"));
    for (const one of endpoints) if (one.network !== undefined && !networks.has(one.network)) elsewhere.delete(one.id);
    const loadBalancers = await hcn.all("LoadBalancer", undefined, signal);
    const isRoot = ({ name }: HcnEndpoint) => name.toLowerCase() === rootName?.toLowerCase();
    return new HostState({
      family,
      network,
      endpoints: endpoints.filter(({ id }) => ours.has(id)),
      loadBalancers,
      elsewhere,
      root: rootName === undefined ? undefined : endpoints.find(isRoot)?.id,
    });
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

  isOurs(id: Guid): boolean {
    return this.endpoints.has(id) || id === this.root;
  }

  isElsewhere(id: Guid): boolean {
    // One that was made between the two lists of a look is in both.
    return this.#elsewhere.has(id) && !this.isOurs(id);
  }

  /** Load balancers that could not be read, as the last look at IDs found them. */
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

  /** Looks whether others have changed what HNS has, in three calls where they have not; what it finds is in the news. */
  async verify(hcn: Hcn, { networkName, rootName, isThorough, signal }: Look): Promise<Verification> {
    const { id } = this.network;
    if (!(await hcn.ids("Network", { Name: networkName })).includes(id)) return "other-network";
    await this.refreshEndpoints(hcn, signal);
    await this.refreshLoadBalancers(hcn, signal);
    await this.#refreshRoot(hcn, rootName);
    const hasChanged =
      isOverlay(this.network) && JSON.stringify(await hcn.get("Network", id)) !== JSON.stringify(this.network);
    if (isThorough) await this.#refreshBehaviour(hcn);
    return hasChanged ? "changed-network" : "same-network";
  }

  /** Looks which endpoints have come and gone: one call, and three for each that is new to both families. */
  async refreshEndpoints(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    const found = new Set(await hcn.ids("Endpoint", { VirtualNetwork: this.network.id }));
    for (const id of [...this.endpoints.ids()]) {
      if (found.has(id)) continue;
      hcn.forget(id);
      for (const address of this.endpoints.forget(id)?.addresses ?? []) this.#addresses.add(address);
    }
    for (const id of found) {
      if (this.endpoints.has(id) || hcn.isUnread(id)) continue;
      signal?.throwIfAborted();
      const endpoint = await hcn.known("Endpoint", id);
      if (endpoint === undefined) continue;
      this.endpoints.note(endpoint);
      for (const address of endpoint.addresses) this.#addresses.add(address);
    }
  }

  /** Looks for the endpoint of the node itself: no call where it is on the cluster's network, and there. */
  async #refreshRoot(hcn: Hcn, rootName: string | undefined): Promise<void> {
    if (rootName === undefined || (this.root !== undefined && this.endpoints.has(this.root))) return;
    const found = (await hcn.named("Endpoint", rootName))?.id;
    if (found === this.root) return;
    this.root = found;
    this.#hasNewRoot = found !== undefined;
  }

  /** Looks which load balancers have come and gone: one call, and three for each that is new to both families. */
  async refreshLoadBalancers(hcn: Hcn, signal?: AbortSignal): Promise<void> {
    const found = new Set(await hcn.ids("LoadBalancer"));
    for (const id of [...this.loadBalancers.ids()]) {
      if (found.has(id)) continue;
      hcn.forget(id);
      const gone = this.loadBalancers.forget(id);
      if (gone !== undefined) for (const key of keysOf(gone, this.family)) this.#lost.add(key);
    }
    let isElsewhereKnown = true;
    for (const id of found) {
      // What cannot be read now cannot be read later.
      if (this.loadBalancers.has(id) || hcn.isUnread(id)) continue;
      signal?.throwIfAborted();
      const loadBalancer = await hcn.known("LoadBalancer", id);
      if (loadBalancer === undefined) continue;
      this.loadBalancers.note(loadBalancer);
      if (!loadBalancer.endpoints.every((endpoint) => this.isOurs(endpoint))) isElsewhereKnown = false;
    }
    this.#unread = [...found].filter((id) => !this.loadBalancers.has(id));
    if (!isElsewhereKnown) await this.#refreshElsewhere(hcn);
  }

  /**
   * Looks which load balancers others have changed under the same ID. The first version of HNS's interface lists all of them with what they
   * do, in one call, where HCN takes three for each. Its view lacks some fields and has others, so it is only compared with itself: what
   * says something else than the last time is read again. Reference windows-hcn.md §4.5.
   */
  async #refreshBehaviour(hcn: Hcn): Promise<void> {
    const seen = new Map<Guid, Seen>();
    const suspects: HcnLoadBalancer[] = [];
    for (const [id, text] of await hcn.policyLists()) {
      const known = this.loadBalancers.get(id);
      if (known === undefined) continue;
      const digest = hash("sha1", text, "base64");
      const before = this.#seen.get(id);
      if (before?.known === known && before.digest !== digest) suspects.push(known);
      seen.set(id, { digest, known });
    }
    for (const before of suspects) {
      const now = await hcn.get("LoadBalancer", before.id);
      // What is gone is seen by its ID.
      if (now === undefined || JSON.stringify(now) === JSON.stringify(before)) continue;
      this.loadBalancers.note(now);
      seen.set(now.id, { digest: seen.get(now.id)?.digest ?? "", known: now });
      this.#changed.push({ before, now });
    }
    // Not before: what HNS did not answer is suspect the next time as well.
    this.#seen = seen;
  }

  /** Other programs make endpoints on their networks, too. */
  async #refreshElsewhere(hcn: Hcn): Promise<void> {
    this.#elsewhere = await idsElsewhere(hcn, new Set(await hcn.ids("Endpoint", { VirtualNetwork: this.network.id })));
  }
}

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
  constructor(keysOf: (object: T) => Iterable<string>, objects: Iterable<T> = []) {
    this.#keysOf = keysOf;
    for (const object of objects) this.note(object);
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
