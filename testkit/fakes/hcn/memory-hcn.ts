/**
 * HNS of one host in memory: networks, endpoints and load balancers as documents, with the documented or reported
 * behaviour (reference windows-practice.md §7). What is only guessed is a switch. `testkit/wine/fake-hns.c` is the same
 * in C; both pass `src/modes/kernelspace/hcn/testing/hcn-contract.ts`.
 */
import { type Guid, parseGuid } from "../../../src/modes/kernelspace/hcn/guid.ts";
import {
  type HcnCalls,
  type HcnHandle,
  type HcnKind,
  HNS_NOTICES,
} from "../../../src/modes/kernelspace/hcn/hcn-calls.ts";
import type { HnsVersion } from "../../../src/modes/kernelspace/hcn/hns-version.ts";
import { type JsonObject, listOf, numberOf, objectOf, textOf } from "../../../src/modes/kernelspace/hcn/json-fields.ts";
import { cidrContains, parseIpAddress } from "../../../src/net/ip.ts";
import { failed, frontendsOf, type HcnVerb, HR, parseJson, subnetsOf } from "./hns-rules.ts";

export { type HcnVerb, HR } from "./hns-rules.ts";

/** One call, as it arrived. */
export interface HcnCall {
  readonly verb: HcnVerb;
  /** Undefined for `HNSCall`. */
  readonly kind: HcnKind | undefined;
  /** ID, query, settings or path. */
  readonly about: string;
}

/** Decides by returning an HRESULT whether a call is rejected, in any state. */
export type HcnFault = (call: HcnCall) => number | undefined;

export interface MemoryHcnOptions {
  /** @default 15.5, which supports modification */
  readonly version?: HnsVersion;
  /** A modification reports success but changes nothing, as in 15.4. */
  readonly modifiesSilently?: boolean;
  /** Endpoints may have any address, as in upstream's tests. @default only those in the network's subnets */
  readonly takesAnyAddress?: boolean;
  /** An endpoint that load balancers name cannot be deleted. */
  readonly keepsReferenced?: boolean;
  /** What it reports about the node behind every endpoint that is created. */
  readonly toldProvider?: string;
  /** What an L2Bridge writes into an empty `SourceVIP`. */
  readonly filledSourceVip?: string;
}

export interface MemoryEndpoint {
  readonly name?: string;
  readonly network?: Guid;
  readonly addresses: readonly string[];
  readonly mac?: string;
  readonly isRemote?: boolean;
}

type Store = Map<Guid, JsonObject>;

const WRITES: ReadonlySet<HcnVerb> = new Set(["Create", "Modify", "Delete"]);

export class MemoryHcn implements HcnCalls {
  #version: HnsVersion;
  readonly #options: MemoryHcnOptions;
  readonly #stores: Readonly<Record<HcnKind, Store>> = {
    Network: new Map(),
    Endpoint: new Map(),
    LoadBalancer: new Map(),
  };
  readonly #handles = new Map<HcnHandle, { readonly kind: HcnKind; readonly id: Guid }>();
  readonly #faults = new Set<HcnFault>();
  readonly #watchers = new Set<(type: number) => void>();
  readonly #calls: HcnCall[] = [];
  /** `protocol port` of ports that the host's sockets hold, or that are reserved. */
  readonly #heldPorts = new Set<string>();
  #total = 0;
  #nextHandle = 0x1000n;
  #nextId = 1;
  #isCalled = false;

  constructor(options: MemoryHcnOptions = {}) {
    this.#options = options;
    this.#version = options.version ?? { major: 15, minor: 5 };
  }

  setVersion(version: HnsVersion): void {
    this.#version = version;
  }

  /** Number of calls so far. */
  get total(): number {
    return this.#total;
  }

  /** Number of open handles. */
  get openHandles(): number {
    return this.#handles.size;
  }

  /** Clears the calls since the last time. @returns them, oldest first. */
  takeCalls(): HcnCall[] {
    return this.#calls.splice(0);
  }

  /** Those of {@link takeCalls} that request a change. */
  takeWrites(): HcnCall[] {
    return this.takeCalls().filter(({ verb }) => WRITES.has(verb));
  }

  /** From now on rejects calls for which `fault` returns an HRESULT. @returns a function that ends that. */
  refuse(fault: HcnFault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** HNS sends a notification: a number of `HCN_NOTIFICATIONS`. */
  notify(type: number): void {
    const watchers = [...this.#watchers];
    // Once it has ended, HNS knows no registration any more.
    if (type === HNS_NOTICES.serviceGone) this.#watchers.clear();
    for (const watcher of watchers) watcher(type);
  }

  /** Number of registrations. */
  get watchers(): number {
    return this.#watchers.size;
  }

  /** Every call fails until the returned function is called; then all objects are there again, as after HNS's own restart. */
  stop(): () => void {
    this.#handles.clear();
    this.notify(HNS_NOTICES.serviceGone);
    return this.refuse(() => HR.managerStopped);
  }

  /** A socket of the host, or a reserved range, holds the port. */
  holdPort(protocol: number, port: number): void {
    this.#heldPorts.add(`${protocol} ${port}`);
  }

  addNetwork(name: string, type: string, policies: readonly JsonObject[] = [], subnets: readonly string[] = []): Guid {
    const ipams = [{ Type: "Static", Subnets: subnets.map((IpAddressPrefix) => ({ IpAddressPrefix })) }];
    return this.#add("Network", { Name: name, Type: type, Policies: policies, Ipams: ipams });
  }

  /** Adds a network with the document of one that was removed, before the host's others. */
  addNetworkAgain(document: JsonObject): Guid {
    const others = [...this.#stores.Network];
    this.#stores.Network.clear();
    const id = this.#add("Network", document);
    for (const [other, its] of others) this.#stores.Network.set(other, its);
    return id;
  }

  setNetwork(id: Guid, change: JsonObject): void {
    this.#stores.Network.set(id, { ...this.#stores.Network.get(id), ...change });
  }

  removeNetwork(id: Guid): void {
    this.#stores.Network.delete(id);
  }

  /** Created by the CNI plugin, or another program. */
  addEndpoint({ name, network, addresses, mac = "00-15-5D-00-00-01", isRemote = false }: MemoryEndpoint): Guid {
    const [first] = this.#stores.Network.keys();
    return this.#add("Endpoint", {
      ...(name !== undefined && { Name: name }),
      HostComputeNetwork: network ?? first,
      IpConfigurations: addresses.map((IpAddress) => ({ IpAddress })),
      MacAddress: mac,
      ...(isRemote && { Flags: 1 }),
    });
  }

  removeEndpoint(id: Guid): void {
    this.#stores.Endpoint.delete(id);
  }

  /** Created by another program, or left by an earlier one; nothing is checked. */
  addLoadBalancer(settings: JsonObject): Guid {
    return this.#add("LoadBalancer", settings);
  }

  /** Another program changes a load balancer. */
  setLoadBalancer(id: Guid, change: JsonObject): void {
    this.#stores.LoadBalancer.set(id, { ...this.#stores.LoadBalancer.get(id), ...change });
  }

  /** It disappears without notice. */
  loseLoadBalancer(id: Guid): void {
    this.#stores.LoadBalancer.delete(id);
  }

  has(kind: HcnKind, id: Guid): boolean {
    return this.#stores[kind].has(id);
  }

  /** Properties by ID. */
  documents(kind: HcnKind): ReadonlyMap<Guid, JsonObject> {
    return this.#stores[kind];
  }

  async enumerate(kind: HcnKind, query: string): Promise<string> {
    return await this.#call({ verb: "Enumerate", kind, about: query }, () => {
      const filter = objectOf(parseJson(textOf(objectOf(parseJson(query)).Filter) || "{}"));
      return JSON.stringify(this.#found(kind, filter));
    });
  }

  async open(kind: HcnKind, id: Guid): Promise<HcnHandle> {
    return await this.#call({ verb: "Open", kind, about: id }, () => {
      if (!this.#stores[kind].has(id)) throw failed("Open", kind, HR.elementNotFound);
      return this.#handle(kind, id);
    });
  }

  async query(kind: HcnKind, handle: HcnHandle, query: string): Promise<string> {
    return await this.#call({ verb: "Query", kind, about: query }, () => {
      const id = this.#opened("Query", kind, handle);
      const document = this.#stores[kind].get(id);
      if (document === undefined) throw failed("Query", kind, HR.elementNotFound);
      return JSON.stringify({ ID: id, ...document });
    });
  }

  async close(kind: HcnKind, handle: HcnHandle): Promise<void> {
    // The handle is closed even if the call fails.
    this.#handles.delete(handle);
    await this.#call({ verb: "Close", kind, about: "" }, () => {}).catch(() => {});
  }

  async createEndpoint(network: HcnHandle, settings: string): Promise<HcnHandle> {
    return await this.#call({ verb: "Create", kind: "Endpoint", about: settings }, () => {
      const networkId = this.#opened("Create", "Network", network);
      const document = objectOf(parseJson(settings));
      this.#checkEndpoint(networkId, document);
      const { toldProvider } = this.#options;
      const Policies = [{ Type: "ProviderAddress", Settings: { ProviderAddress: toldProvider } }];
      const told = toldProvider !== undefined && "Policies" in document ? { ...document, Policies } : document;
      return this.#handle("Endpoint", this.#add("Endpoint", { Name: "Ethernet", ...told }));
    });
  }

  async createLoadBalancer(settings: string): Promise<HcnHandle> {
    return await this.#call({ verb: "Create", kind: "LoadBalancer", about: settings }, () => {
      const document = objectOf(parseJson(settings));
      this.#checkLoadBalancer("Create", document, undefined);
      return this.#handle("LoadBalancer", this.#add("LoadBalancer", this.#filled(document)));
    });
  }

  async modifyLoadBalancer(handle: HcnHandle, settings: string): Promise<void> {
    await this.#call({ verb: "Modify", kind: "LoadBalancer", about: settings }, () => {
      const id = this.#opened("Modify", "LoadBalancer", handle);
      const { major, minor } = this.#version;
      if (this.#options.modifiesSilently === true) return;
      if (major < 15 || (major === 15 && minor < 5)) throw failed("Modify", "LoadBalancer", HR.notImplemented);
      const document = objectOf(parseJson(settings));
      this.#checkLoadBalancer("Modify", document, id);
      this.#stores.LoadBalancer.set(id, this.#filled(document));
    });
  }

  async delete(kind: HcnKind, id: Guid): Promise<void> {
    await this.#call({ verb: "Delete", kind, about: id }, () => {
      if (!this.#stores[kind].has(id)) throw failed("Delete", kind, HR.elementNotFound);
      if (kind === "Endpoint" && this.#options.keepsReferenced === true && this.#isReferenced(id)) {
        throw failed("Delete", kind, HR.hasReferences);
      }
      this.#stores[kind].delete(id);
    });
  }

  async hnsCall(_method: string, path: string, _body: string): Promise<string> {
    return await this.#call({ verb: "Call", kind: undefined, about: path }, () => {
      const { major: Major, minor: Minor } = this.#version;
      if (path === "/globals/version") return JSON.stringify({ Success: true, Output: { Major, Minor } });
      if (path === "/policylists/") return JSON.stringify({ Success: true, Output: this.#policyLists() });
      return JSON.stringify({ Success: false, Error: `unknown path ${path}` });
    });
  }

  async watch(onNotice: (type: number) => void): Promise<() => Promise<void>> {
    return await this.#call({ verb: "Watch", kind: undefined, about: "" }, () => {
      // Each registration is separate, even of the same function.
      const watcher = (type: number): void => onNotice(type);
      this.#watchers.add(watcher);
      return async () => void this.#watchers.delete(watcher);
    });
  }

  /** The first version's view, whose IDs are in upper case (reference windows-hcn.md §4.2, §4.5). */
  #policyLists(): JsonObject[] {
    return [...this.#stores.LoadBalancer].map(([id, document]) => {
      const [mapping] = listOf(document.PortMappings).map(objectOf);
      return {
        ID: id.toUpperCase(),
        References: listOf(document.HostComputeEndpoints).map((endpoint) => `/endpoints/${textOf(endpoint)}`),
        Policies: [{ ...mapping, Type: "ELB", SourceVIP: document.SourceVIP, VIPs: document.FrontendVIPs }],
      };
    });
  }

  /** Calls take time, and two at once would be the caller's fault. */
  async #call<T>(call: HcnCall, run: () => T): Promise<T> {
    if (this.#isCalled) throw new Error(`${call.verb} was called while another call was under way`);
    this.#isCalled = true;
    try {
      await Promise.resolve();
      this.#total++;
      this.#calls.push(call);
      for (const fault of this.#faults) {
        const hresult = fault(call);
        if (hresult !== undefined) throw failed(call.verb, call.kind, hresult);
      }
      return run();
    } finally {
      this.#isCalled = false;
    }
  }

  #found(kind: HcnKind, filter: JsonObject): Guid[] {
    const id = textOf(filter.ID);
    if ("ID" in filter && parseGuid(id) === undefined) throw failed("Enumerate", kind, HR.badGuid);
    const wanted = { id: parseGuid(id), name: textOf(filter.Name), network: parseGuid(textOf(filter.VirtualNetwork)) };
    return [...this.#stores[kind]].flatMap(([found, document]) => {
      const isIt =
        (!("ID" in filter) || found === wanted.id) &&
        (!("Name" in filter) || textOf(document.Name).toLowerCase() === wanted.name.toLowerCase()) &&
        (!("VirtualNetwork" in filter) || textOf(document.HostComputeNetwork).toLowerCase() === wanted.network);
      return isIt ? [found] : [];
    });
  }

  #checkEndpoint(networkId: Guid, document: JsonObject): void {
    const network = this.#stores.Network.get(networkId);
    if (network === undefined) throw failed("Create", "Endpoint", HR.networkNotFound);
    if (this.#options.takesAnyAddress === true) return;
    const prefixes = subnetsOf(network);
    for (const configuration of listOf(document.IpConfigurations)) {
      const address = parseIpAddress(textOf(objectOf(configuration).IpAddress));
      if (address === undefined) throw failed("Create", "Endpoint", HR.reservedAddress);
      // A remote endpoint stands for something elsewhere.
      if (numberOf(document.Flags) === 1 || prefixes.length === 0) continue;
      if (!prefixes.some((prefix) => cidrContains(prefix, address))) {
        throw failed("Create", "Endpoint", HR.reservedAddress);
      }
    }
  }

  #checkLoadBalancer(verb: HcnVerb, document: JsonObject, own: Guid | undefined): void {
    const endpoints = listOf(document.HostComputeEndpoints);
    if (endpoints.length === 0) throw failed(verb, "LoadBalancer", HR.lacksReference);
    for (const endpoint of endpoints) {
      const id = parseGuid(textOf(endpoint));
      if (id === undefined || !this.#stores.Endpoint.has(id)) throw failed(verb, "LoadBalancer", HR.endpointNotFound);
    }
    for (const mapping of listOf(document.PortMappings)) {
      if (numberOf(objectOf(mapping).InternalPort) === 0) throw failed(verb, "LoadBalancer", HR.badInternalPort);
    }
    const wanted = new Set(frontendsOf(document));
    const isHeld = [...wanted].some((frontend) => this.#heldPorts.has(frontend.slice(frontend.indexOf(" ") + 1)));
    const isTaken = [...this.#stores.LoadBalancer].some(
      ([id, other]) => id !== own && frontendsOf(other).some((frontend) => wanted.has(frontend)),
    );
    if (isHeld || isTaken) throw failed(verb, "LoadBalancer", HR.portAlreadyExists);
  }

  #filled(document: JsonObject): JsonObject {
    const { filledSourceVip } = this.#options;
    if (filledSourceVip === undefined || "SourceVIP" in document) return document;
    return { ...document, SourceVIP: filledSourceVip };
  }

  #isReferenced(endpoint: Guid): boolean {
    return [...this.#stores.LoadBalancer.values()].some((document) =>
      listOf(document.HostComputeEndpoints).some((id) => textOf(id).toLowerCase() === endpoint),
    );
  }

  #add(kind: HcnKind, document: JsonObject): Guid {
    const prefix = { Network: "1", Endpoint: "2", LoadBalancer: "3" }[kind];
    const id = parseGuid(`${prefix}0000000-0000-4000-8000-${String(this.#nextId++).padStart(12, "0")}`);
    if (id === undefined) throw new RangeError("too many objects");
    this.#stores[kind].set(id, document);
    return id;
  }

  #handle(kind: HcnKind, id: Guid): HcnHandle {
    const handle = this.#nextHandle++;
    this.#handles.set(handle, { kind, id });
    return handle;
  }

  #opened(verb: HcnVerb, kind: HcnKind, handle: HcnHandle): Guid {
    const opened = this.#handles.get(handle);
    if (opened?.kind !== kind) throw failed(verb, kind, 0x803b_0031);
    return opened.id;
  }
}
