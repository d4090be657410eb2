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
  readIds,
  readLoadBalancer,
  readNetwork,
  type UnreadDocument,
} from "./documents.ts";
import type { Guid } from "./guid.ts";
import type { HcnCalls, HcnHandle, HcnKind } from "./hcn-calls.ts";
import { hcnErrorClass } from "./hcn-error.ts";
import type { HnsVersion } from "./hns-version.ts";
import { numberOf, objectOf, textOf } from "./json-fields.ts";

/** Told of a document that cannot be read: the object stays as it is. */
export type OnUnread = (kind: HcnKind, id: Guid, problem: string) => void;

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

  /** The network of this name; undefined when there is none. */
  async networkNamed(name: string, signal?: AbortSignal): Promise<HcnNetwork | undefined> {
    return (await this.#list("Network", { Name: name }, signal))[0];
  }

  /** One call. */
  async networkIds(name: string): Promise<readonly Guid[]> {
    return readIds(await this.#calls.enumerate("Network", queryText({ Name: name })));
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
  async createEndpoint(settings: EndpointSettings): Promise<HcnEndpoint> {
    const calls = this.#calls;
    const network = await calls.open("Network", settings.network);
    try {
      return await this.#read("Endpoint", await calls.createEndpoint(network, endpointText(settings)));
    } finally {
      await calls.close("Network", network);
    }
  }

  /** @returns the load balancer as HNS has it now. */
  async createLoadBalancer(settings: LoadBalancerSettings): Promise<HcnLoadBalancer> {
    const handle = await this.#calls.createLoadBalancer(loadBalancerText(settings));
    return await this.#read("LoadBalancer", handle);
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
    return await this.#read("LoadBalancer", handle);
  }

  /** What is gone already is deleted. */
  async delete(kind: "Endpoint" | "LoadBalancer", id: Guid): Promise<void> {
    try {
      await this.#calls.delete(kind, id);
    } catch (error) {
      if (hcnErrorClass(error) !== "absent") throw error;
    }
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
      if (hcnErrorClass(error) === "absent") return undefined;
      throw error;
    }
    const object = READERS[kind](text);
    if (!("problem" in object)) return object;
    this.#onUnread(kind, id, object.problem);
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
    const { Success, Error: reason, Output } = objectOf(JSON.parse(await this.#calls.hnsCall("GET", path, "")));
    if (Success === true) return Output;
    throw new Error(`HNS does not answer GET ${path}: ${textOf(reason) || "no reason given"}`);
  }
}
