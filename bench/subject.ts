/** The subject of measurements: the model of one family as the daemon has it, and a backend. The proxier, which only decides when, is left out. */

import type { Backend } from "../src/contract/backend.ts";
import { silentLogger } from "../src/logging/logger.ts";
import type { EndpointSliceRecord } from "../src/model/objects.ts";
import { ProxyState } from "../src/model/proxy-state.ts";
import { benchService, benchSlice, NODE_NAME, withReplacedEndpoint } from "./cluster.ts";

/** An empty model of the bench's cluster. */
function benchState(): ProxyState {
  return new ProxyState({
    family: "IPv4",
    nodeName: NODE_NAME,
    allowExternalIPs: true,
    now: () => 0,
    log: silentLogger,
  });
}

export class Subject {
  readonly state = benchState();
  readonly endpointsEach: number;
  readonly #newBackend: () => Backend;
  /** Each service's slice, by number: the very objects in the model, as the daemon's sources keep them. */
  readonly #slices: EndpointSliceRecord[] = [];
  /** Never aborts; one for all syncs, as in the daemon. */
  readonly #end = new AbortController();
  #loaded = 1;
  backend: Backend;

  constructor(endpointsEach: number, newBackend: () => Backend) {
    this.endpointsEach = endpointsEach;
    this.#newBackend = newBackend;
    this.backend = newBackend();
  }

  /** Service number of the nth change: consecutive changes are far apart. */
  scattered(n: number): number {
    return (n * 7919) % this.#loaded;
  }

  /** Puts the services with smaller numbers, and their endpoints, into the model. */
  load(count: number): void {
    this.#loaded = count;
    for (let index = 0; index < count; index += 1) this.setService(index, "add");
    this.state.applyChanges();
  }

  sliceOf(index: number): EndpointSliceRecord {
    return this.#slices[index] ?? benchSlice(index, this.endpointsEach);
  }

  /** Replaces the slice of a service, in the model only. */
  setSlice(index: number, object: EndpointSliceRecord): void {
    const old = this.sliceOf(index);
    this.#slices[index] = object;
    this.state.onEndpointSlice({ kind: "update", old, object });
  }

  /** Replaces an endpoint of a service, in the model only. */
  replaceEndpoint(index: number): void {
    const old = this.sliceOf(index);
    this.setSlice(index, withReplacedEndpoint(old, index, Number(old.resourceVersion)));
  }

  /** Adds a service with its endpoints, or removes it, in the model only. */
  setService(index: number, kind: "add" | "delete"): void {
    const slice = this.sliceOf(index);
    this.state.onService({ kind, object: benchService(index) });
    this.state.onEndpointSlice({ kind, object: slice });
    if (kind === "add") this.#slices[index] = slice;
    else delete this.#slices[index];
  }

  /** What follows is the next process's work. */
  restart(): void {
    this.backend = this.#newBackend();
  }

  /** A sync of everything. */
  async fullSync(): Promise<void> {
    await this.sync(true, new Set());
  }

  /** Commits what has changed in the model. */
  async syncChanges(): Promise<void> {
    await this.sync(false, this.state.applyChanges().changedPorts);
  }

  /** @throws if anything is rejected. */
  async sync(isFullSync: boolean, changedPorts: ReadonlySet<string>): Promise<void> {
    const [failure] = await this.failuresOf(isFullSync, changedPorts);
    if (failure !== undefined) throw new Error(`${failure.subject} was refused: ${failure.reason}`);
  }

  async failuresOf(isFullSync: boolean, changedPorts: ReadonlySet<string>) {
    const { services, endpoints, endpointCount } = this.state;
    const cluster = { services, endpoints, endpointCount, zone: undefined, serviceCIDRs: ["10.96.0.0/12"] };
    const { failures } = await this.backend.sync({ ...cluster, isFullSync, changedPorts }, this.#end.signal);
    return failures;
  }
}
