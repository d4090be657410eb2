/**
 * Networks, endpoints and load balancers of the Windows host, as types. Knows nothing about Services. An object that
 * vanishes after it was listed is left out; one whose document cannot be read is reported and left out. Handles are closed
 * in every case. Reference windows-hcn.md §4.4.
 */
import { messageOf } from "../../../logging/message-of.ts";
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

/** Called once for each unusual document. */
interface OddDocuments {
  /** It cannot be read: the object is left alone. */
  unread(kind: HcnKind, id: Guid, problem: string): void;
  /** It has another version of the schema, and is read nevertheless. */
  otherSchema(kind: HcnKind, id: Guid, version: number): void;
}

/** HNS lists objects that it cannot open. One that fails so many times in a row must not keep the others from being served. */
const BROKEN_AFTER = 5;

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
  readonly #brokenAfter: number;
  readonly #otherSchema = new Set<Guid>();
  /** Problems of documents, by ID of the object. */
  readonly #unread = new Map<Guid, string>();
  /** Consecutive failures to read an object, by ID. */
  readonly #failures = new Map<Guid, number>();
  /** The last read version of each object, so that one address family need not read what the other created. */
  readonly #read: { readonly [K in HcnKind]: Map<Guid, ObjectOf[K]> } = {
    Network: new Map(),
    Endpoint: new Map(),
    LoadBalancer: new Map(),
  };

  /** @param brokenAfter an object is left out after so many consecutive failures to read it. */
  constructor(
    calls: HcnCalls,
    onOdd: OddDocuments = { unread() {}, otherSchema() {} },
    brokenAfter: number = BROKEN_AFTER,
  ) {
    this.#calls = calls;
    this.#onOdd = onOdd;
    this.#brokenAfter = brokenAfter;
  }

  /** @throws Error if HNS does not tell. */
  async version(): Promise<HnsVersion> {
    const { Major, Minor } = objectOf(await this.#hns("/globals/version"));
    return { major: numberOf(Major), minor: numberOf(Minor) };
  }

  /**
   * All load balancers of the host as the first version of the API lists them: JSON by ID, useful only to detect changes. One call.
   *
   * @throws Error if HNS does not answer.
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

  /** The objects that match the filter, or all of the host, in HNS's order: one call. */
  async ids(kind: HcnKind, filter?: HcnFilter): Promise<readonly Guid[]> {
    return readIds(await this.#calls.enumerate(kind, queryText(filter)));
  }

  /** The same as objects: one call, and three for each object. */
  async all<K extends HcnKind>(kind: K, filter?: HcnFilter, signal?: AbortSignal): Promise<ObjectOf[K][]> {
    const query = queryText(filter);
    signal?.throwIfAborted();
    const ids = readIds(await this.#calls.enumerate(kind, query));
    const read = this.#read[kind];
    if (filter === undefined) for (const id of new Set(read.keys()).difference(new Set(ids))) read.delete(id);
    const found: ObjectOf[K][] = [];
    let failure: unknown;
    for (const id of ids) {
      signal?.throwIfAborted();
      try {
        const object = await this.#look(kind, id, query);
        if (object !== undefined) found.push(object);
      } catch (error) {
        if (!isOfOneObject(error)) throw error;
        failure ??= error;
      }
    }
    if (failure !== undefined) throw failure;
    return found;
  }

  /** The first object of this name, if any. */
  async named<K extends HcnKind>(kind: K, name: string, signal?: AbortSignal): Promise<ObjectOf[K] | undefined> {
    return (await this.all(kind, { Name: name }, signal))[0];
  }

  /** The current state of an object; undefined if it is gone. */
  get<K extends HcnKind>(kind: K, id: Guid): Promise<ObjectOf[K] | undefined> {
    return this.#look(kind, id, queryText());
  }

  /** The last state read by either address family; {@link get} if there is none. */
  async known<K extends HcnKind>(kind: K, id: Guid): Promise<ObjectOf[K] | undefined> {
    return this.#read[kind].get(id) ?? (await this.get(kind, id));
  }

  /** The object is gone: if its ID comes back, it is read again. */
  forget(id: Guid): void {
    for (const read of Object.values(this.#read)) read.delete(id);
  }

  /** @returns the endpoint as HNS describes it. */
  createEndpoint(settings: EndpointSettings): Promise<HcnEndpoint> {
    return this.makeEndpoints(settings.network, (create) => create(settings));
  }

  /** Creates many endpoints on a network, which is opened once: three calls for each, and two if there are any. */
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

  /** @returns the load balancer as HNS describes it: some versions of HNS do not change it. */
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

  /** Succeeds if the object is gone already. */
  async delete(kind: HcnKind, id: Guid): Promise<void> {
    this.forget(id);
    try {
      await this.#calls.delete(kind, id);
    } catch (error) {
      if (hcnErrorClass(error) !== "absent") throw error;
    }
  }

  /** Whether the document of an object could not be read the last time. */
  isUnread(id: Guid): boolean {
    return this.#unread.has(id);
  }

  /** Whether reading some object failed the last time. */
  get hasFailures(): boolean {
    return this.#failures.size > 0;
  }

  /**
   * Reports notifications of HNS until the returned function is called, which must be called in every case.
   *
   * @throws HcnError if HNS rejects the registration.
   */
  watch(onNotice: (type: number) => void): Promise<() => Promise<void>> {
    return this.#calls.watch((type) => onNotice(type >>> 0));
  }

  async #look<K extends HcnKind>(kind: K, id: Guid, query: string): Promise<ObjectOf[K] | undefined> {
    let text: string;
    try {
      text = await this.#propertiesOf(kind, await this.#calls.open(kind, id), query);
    } catch (error) {
      if (hcnErrorClass(error) === "absent") {
        this.#unread.delete(id);
        this.#failures.delete(id);
      } else this.#noteFailure(kind, id, error);
      this.forget(id);
      return undefined;
    }
    this.#failures.delete(id);
    const object = READERS[kind](text);
    if (!("problem" in object)) {
      this.#unread.delete(id);
      if (object.otherSchema !== undefined && !this.#otherSchema.has(id)) {
        this.#otherSchema.add(id);
        this.#onOdd.otherSchema(kind, id, object.otherSchema);
      }
      this.#read[kind].set(id, object);
      return object;
    }
    this.forget(id);
    if (this.#unread.get(id) !== object.problem) this.#onOdd.unread(kind, id, object.problem);
    this.#unread.set(id, object.problem);
    return undefined;
  }

  /** @throws the error, until it is certain that only this object is broken. It is tried again with every read. */
  #noteFailure(kind: HcnKind, id: Guid, error: unknown): void {
    if (kind === "Network" || !isOfOneObject(error)) throw error;
    const failures = (this.#failures.get(id) ?? 0) + 1;
    this.#failures.set(id, failures);
    if (failures < this.#brokenAfter) throw error;
    if (failures === this.#brokenAfter) this.#onOdd.unread(kind, id, `cannot be read: ${messageOf(error)}`);
  }

  /** Reads a created or modified object, and closes it. */
  async #describe<K extends HcnKind>(kind: K, handle: HcnHandle): Promise<ObjectOf[K]> {
    const object = READERS[kind](await this.#propertiesOf(kind, handle, queryText()));
    if ("problem" in object) throw new Error(`HNS describes a new ${kind} in a document that ${object.problem}`);
    this.#read[kind].set(object.id, object);
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

/** Whether the error concerns the requested object rather than HNS as a whole. */
function isOfOneObject(error: unknown): boolean {
  const kind = hcnErrorClass(error);
  return kind !== undefined && kind !== "down" && kind !== "denied";
}
