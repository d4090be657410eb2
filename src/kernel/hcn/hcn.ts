/**
 * Networks, endpoints and load balancers of the Windows host, as types. Knows nothing of Services. An object that vanishes
 * between being listed and being looked at is left out; one whose document cannot be read is told, and left out as well.
 * Handles are closed in every case. Reference windows-hcn.md §4.4.
 */
import {
  type EndpointSettings,
  endpointText,
  type HcnEndpoint,
  type HcnFilter,
  type HcnLoadBalancer,
  type HcnNetwork,
  type LoadBalancerSettings,
  loadBalancerText,
  queryText,
  readEndpoint,
  readHnsList,
  readHnsOutput,
  readIds,
  readLoadBalancer,
  readNetwork,
  type UnreadDocument,
} from "./documents.ts";
import { type Guid, parseGuid } from "./guid.ts";
import type { HcnCalls, HcnHandle, HcnKind } from "./hcn-calls.ts";
import { hcnErrorClass } from "./hcn-error.ts";
import type { HnsVersion } from "./hns-version.ts";
import { numberOf, objectOf, textOf } from "./json-fields.ts";
import { type HnsNoticeKind, noticeKind } from "./notices.ts";

/** Told once of each document that is not as it should be. */
interface OddDocuments {
  /** It cannot be read: the object stays as it is. */
  unread(kind: HcnKind, id: Guid, problem: string): void;
  /** It is read, though it is of another version of the schema. */
  otherSchema(kind: HcnKind, id: Guid, version: number): void;
}

/** @returns the endpoint as HNS has it now. */
type CreateEndpoint = (settings: EndpointSettings) => Promise<HcnEndpoint>;

interface ObjectOf {
  readonly Network: HcnNetwork;
  readonly Endpoint: HcnEndpoint;
  readonly LoadBalancer: HcnLoadBalancer;
}

const READERS: {
  readonly [K in HcnKind]: (text: string) => ObjectOf[K] | UnreadDocument;
} = {
  Network: readNetwork,
  Endpoint: readEndpoint,
  LoadBalancer: readLoadBalancer,
};

export class Hcn {
  readonly #calls: HcnCalls;
  readonly #onOdd: OddDocuments;
  readonly #otherSchema = new Set<Guid>();
  /** What is wrong with documents, by ID of the object. */
  readonly #unread = new Map<Guid, string>();
  /** Endpoints and load balancers as they were read last, so that one address family need not read what the other has made. */
  readonly #read = new Map<Guid, HcnEndpoint | HcnLoadBalancer>();

  constructor(calls: HcnCalls, onOdd: OddDocuments = { unread() {}, otherSchema() {} }) {
    this.#calls = calls;
    this.#onOdd = onOdd;
  }

  /** @throws Error when HNS does not say. */
  async version(): Promise<HnsVersion> {
    const { Major, Minor } = objectOf(await this.#hns("/globals/version"));
    return { major: numberOf(Major), minor: numberOf(Minor) };
  }

  /** Whether HNS has load balancers at all. @throws Error when it does not answer as one that has. */
  async checkPolicyLists(): Promise<void> {
    await this.#hns("/policylists/");
  }

  /**
   * The first version's view of all load balancers of the host, by ID, as JSON texts of which only their change says something: one call.
   *
   * @throws Error when HNS does not answer.
   */
  async policyLists(): Promise<ReadonlyMap<Guid, string>> {
    const found = new Map<Guid, string>();
    const path = "/policylists/";
    for (const item of readHnsList(await this.#calls.hnsCall("GET", path, ""), path)) {
      const id = parseGuid(textOf(objectOf(item).ID));
      if (id !== undefined) found.set(id, JSON.stringify(item));
    }
    return found;
  }

  /** The network of this name; undefined when there is none. */
  async networkNamed(name: string, signal?: AbortSignal): Promise<HcnNetwork | undefined> {
    return (await this.#list("Network", { Name: name }, signal))[0];
  }

  /** Those of a name, or all of the host: one call. */
  async networkIds(name?: string): Promise<readonly Guid[]> {
    return readIds(await this.#calls.enumerate("Network", queryText(name === undefined ? undefined : { Name: name })));
  }

  /** A network as it is now; undefined when it is gone. */
  network(id: Guid): Promise<HcnNetwork | undefined> {
    return this.#look("Network", id, queryText());
  }

  /** The endpoint of this name; undefined when there is none. */
  async endpointNamed(name: string): Promise<HcnEndpoint | undefined> {
    return (await this.#list("Endpoint", { Name: name }))[0];
  }

  /** Those of a network, or of the host, in HNS's order: one call, and three for each. */
  endpoints(network?: Guid, signal?: AbortSignal): Promise<HcnEndpoint[]> {
    return this.#list("Endpoint", network && { VirtualNetwork: network }, signal);
  }

  /** Those of a network, or of the host: one call. */
  async endpointIds(network?: Guid): Promise<readonly Guid[]> {
    return readIds(await this.#calls.enumerate("Endpoint", queryText(network && { VirtualNetwork: network })));
  }

  endpoint(id: Guid): Promise<HcnEndpoint | undefined> {
    return this.#look("Endpoint", id, queryText());
  }

  /** The endpoint as anyone has read it last; otherwise as {@link endpoint}. */
  async knownEndpoint(id: Guid): Promise<HcnEndpoint | undefined> {
    const known = this.#read.get(id);
    return known !== undefined && "addresses" in known ? known : await this.endpoint(id);
  }

  /** All of the host: one call, and three for each. */
  loadBalancers(signal?: AbortSignal): Promise<HcnLoadBalancer[]> {
    return this.#list("LoadBalancer", undefined, signal);
  }

  /** One call. */
  async loadBalancerIds(): Promise<readonly Guid[]> {
    return readIds(await this.#calls.enumerate("LoadBalancer", queryText()));
  }

  loadBalancer(id: Guid): Promise<HcnLoadBalancer | undefined> {
    return this.#look("LoadBalancer", id, queryText());
  }

  /** The load balancer as anyone has read it last; otherwise as {@link loadBalancer}. */
  async knownLoadBalancer(id: Guid): Promise<HcnLoadBalancer | undefined> {
    const known = this.#read.get(id);
    return known !== undefined && "mappings" in known ? known : await this.loadBalancer(id);
  }

  /** It has gone: should its ID come back, it is read. */
  forget(id: Guid): void {
    this.#read.delete(id);
  }

  /** @returns the endpoint as HNS has it now. */
  createEndpoint(settings: EndpointSettings): Promise<HcnEndpoint> {
    return this.makeEndpoints(settings.network, (create) => create(settings));
  }

  /** Makes many endpoints on a network, which is opened once: three calls for each, and two if there are any. */
  async makeEndpoints<T>(network: Guid, run: (create: CreateEndpoint) => Promise<T>): Promise<T> {
    const calls = this.#calls;
    let opened: HcnHandle | undefined;
    try {
      return await run(async (settings) => {
        opened ??= await calls.open("Network", network);
        return await this.#describe("Endpoint", await calls.createEndpoint(opened, endpointText(settings)));
      });
    } finally {
      if (opened !== undefined) await calls.close("Network", opened);
    }
  }

  /** @returns the load balancer as HNS has it now. */
  async createLoadBalancer(settings: LoadBalancerSettings): Promise<HcnLoadBalancer> {
    const handle = await this.#calls.createLoadBalancer(loadBalancerText(settings));
    return await this.#describe("LoadBalancer", handle);
  }

  /** @returns the load balancer as HNS has it now, which some versions of HNS leave as it was. */
  async modifyLoadBalancer(id: Guid, settings: LoadBalancerSettings): Promise<HcnLoadBalancer> {
    const calls = this.#calls;
    const handle = await calls.open("LoadBalancer", id);
    try {
      await calls.modifyLoadBalancer(handle, loadBalancerText(settings));
    } catch (error) {
      await calls.close("LoadBalancer", handle);
      throw error;
    }
    return await this.#describe("LoadBalancer", handle);
  }

  /** What is gone already is deleted. */
  async delete(kind: HcnKind, id: Guid): Promise<void> {
    this.forget(id);
    try {
      await this.#calls.delete(kind, id);
    } catch (error) {
      if (hcnErrorClass(error) !== "absent") throw error;
    }
  }

  /** Whether the last look at an object found a document that cannot be read. */
  isUnread(id: Guid): boolean {
    return this.#unread.has(id);
  }

  /**
   * Tells what HNS says on its own until the returned function is called, which must be.
   *
   * @throws HcnError when HNS does not take it.
   */
  watch(onNotice: (notice: HnsNoticeKind) => void): Promise<() => Promise<void>> {
    return this.#calls.watch((type) => onNotice(noticeKind(type)));
  }

  async #list<K extends HcnKind>(kind: K, filter: HcnFilter | undefined, signal?: AbortSignal): Promise<ObjectOf[K][]> {
    const query = queryText(filter);
    signal?.throwIfAborted();
    const found: ObjectOf[K][] = [];
    for (const id of readIds(await this.#calls.enumerate(kind, query))) {
      signal?.throwIfAborted();
      const object = await this.#look(kind, id, query);
      if (object !== undefined) found.push(object);
    }
    return found;
  }

  async #look<K extends HcnKind>(kind: K, id: Guid, query: string): Promise<ObjectOf[K] | undefined> {
    let text: string;
    try {
      text = await this.#propertiesOf(kind, await this.#calls.open(kind, id), query);
    } catch (error) {
      if (hcnErrorClass(error) !== "absent") throw error;
      this.#unread.delete(id);
      this.forget(id);
      return undefined;
    }
    const object = READERS[kind](text);
    if (!("problem" in object)) {
      this.#unread.delete(id);
      if (object.otherSchema !== undefined && !this.#otherSchema.has(id)) {
        this.#otherSchema.add(id);
        this.#onOdd.otherSchema(kind, id, object.otherSchema);
      }
      this.#remember(object);
      return object;
    }
    this.forget(id);
    if (this.#unread.get(id) !== object.problem) this.#onOdd.unread(kind, id, object.problem);
    this.#unread.set(id, object.problem);
    return undefined;
  }

  /** Reads a created or changed object, and closes it. */
  async #describe<K extends HcnKind>(kind: K, handle: HcnHandle): Promise<ObjectOf[K]> {
    const object = READERS[kind](await this.#propertiesOf(kind, handle, queryText()));
    if ("problem" in object) throw new Error(`HNS describes a new ${kind} in a document that ${object.problem}`);
    this.#remember(object);
    return object;
  }

  #remember(object: HcnNetwork | HcnEndpoint | HcnLoadBalancer): void {
    if (!("remoteSubnets" in object)) this.#read.set(object.id, object);
  }

  async #propertiesOf(kind: HcnKind, handle: HcnHandle, query: string): Promise<string> {
    try {
      return await this.#calls.query(kind, handle, query);
    } finally {
      await this.#calls.close(kind, handle);
    }
  }

  async #hns(path: string): Promise<unknown> {
    return readHnsOutput(await this.#calls.hnsCall("GET", path, ""), path);
  }
}
