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
import { type JsonObject, numberOf, objectOf, textOf } from "./json-fields.ts";
import { type NetworkSettings, networkText, type PolicyChange, policyRequestText } from "./network-documents.ts";
import { type HnsNoticeKind, noticeKind } from "./notices.ts";

/** Told once of a document that cannot be read: the object stays as it is. */
export type OnUnread = (kind: HcnKind, id: Guid, problem: string) => void;

/** @returns the endpoint as HNS has it now. */
export type CreateEndpoint = (settings: EndpointSettings) => Promise<HcnEndpoint>;

interface ObjectOf {
  readonly Network: HcnNetwork;
  readonly Endpoint: HcnEndpoint;
  readonly LoadBalancer: HcnLoadBalancer;
}

const READERS: { readonly [K in HcnKind]: (text: string) => ObjectOf[K] | UnreadDocument } = {
  Network: readNetwork,
  Endpoint: readEndpoint,
  LoadBalancer: readLoadBalancer,
};

export class Hcn {
  readonly #calls: HcnCalls;
  readonly #onUnread: OnUnread;
  /** What is wrong with documents, by ID of the object. */
  readonly #unread = new Map<Guid, string>();

  constructor(calls: HcnCalls, onUnread: OnUnread = () => {}) {
    this.#calls = calls;
    this.#onUnread = onUnread;
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
        return await this.#read("Endpoint", await calls.createEndpoint(opened, endpointText(settings)));
      });
    } finally {
      if (opened !== undefined) await calls.close("Network", opened);
    }
  }

  /** @returns the load balancer as HNS has it now. */
  async createLoadBalancer(settings: LoadBalancerSettings): Promise<HcnLoadBalancer> {
    const handle = await this.#calls.createLoadBalancer(loadBalancerText(settings));
    return await this.#read("LoadBalancer", handle);
  }

  /** @returns the network as HNS has it now. */
  async createNetwork(settings: NetworkSettings): Promise<HcnNetwork> {
    return await this.#read("Network", await this.#calls.createNetwork(networkText(settings)));
  }

  /** @returns the load balancer as HNS has it now, which some versions of HNS leave as it was. */
  modifyLoadBalancer(id: Guid, settings: LoadBalancerSettings): Promise<HcnLoadBalancer> {
    return this.#modify("LoadBalancer", id, loadBalancerText(settings));
  }

  /** Adds, removes or replaces policies. @returns the object as HNS has it now. */
  changePolicies<K extends "Network" | "Endpoint">(
    kind: K,
    id: Guid,
    change: PolicyChange,
    policies: readonly JsonObject[],
  ): Promise<ObjectOf[K]> {
    return this.#modify(kind, id, policyRequestText(change, policies));
  }

  /** What is gone already is deleted. */
  async delete(kind: HcnKind, id: Guid): Promise<void> {
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

  async #modify<K extends HcnKind>(kind: K, id: Guid, text: string): Promise<ObjectOf[K]> {
    const calls = this.#calls;
    const handle = await calls.open(kind, id);
    try {
      await calls.modify(kind, handle, text);
    } catch (error) {
      await calls.close(kind, handle);
      throw error;
    }
    return await this.#read(kind, handle);
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
      return undefined;
    }
    const object = READERS[kind](text);
    if (!("problem" in object)) {
      this.#unread.delete(id);
      return object;
    }
    if (this.#unread.get(id) !== object.problem) this.#onUnread(kind, id, object.problem);
    this.#unread.set(id, object.problem);
    return undefined;
  }

  /** Reads a created or changed object, and closes it. */
  async #read<K extends HcnKind>(kind: K, handle: HcnHandle): Promise<ObjectOf[K]> {
    const object = READERS[kind](await this.#propertiesOf(kind, handle, queryText()));
    if ("problem" in object) throw new Error(`HNS describes a new ${kind} in a document that ${object.problem}`);
    return object;
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
