/**
 * The daemon's path from a line of the watch to a backend, with everything around it but the network: source,
 * projection, model, proxier, metrics, health. Both watches are streams in memory.
 */
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { ObjectCache } from "../src/agent/cluster/apiserver/watch/object-cache.ts";
import { CLUSTER_RESOURCES, type WatchedResource } from "../src/agent/cluster/apiserver/watch/resources.ts";
import { followWatch } from "../src/agent/cluster/apiserver/watch/watch-reader.ts";
import { ProxyHealth } from "../src/agent/server/health/proxy-health.ts";
import { ServiceHealth } from "../src/agent/server/health/service-health.ts";
import { createMetrics } from "../src/agent/server/metrics/metrics.ts";
import { DualStackDispatcher } from "../src/agent/sync/dual-stack.ts";
import { Proxier } from "../src/agent/sync/proxier.ts";
import { systemClock } from "../src/async/clock.ts";
import type { Backend } from "../src/contract/backend.ts";
import { NO_CONNTRACK } from "../src/kernel/conntrack/conntrack.ts";
import type { Nftables } from "../src/kernel/nftables/nftables.ts";
import { createLogger } from "../src/logging/create-logger.ts";
import type { ObjectKind } from "../src/model/object-source.ts";
import { apiService, apiSlice } from "./api-objects.ts";
import { NODE_NAME } from "./cluster.ts";

const SYNC_PERIOD_MS = 30_000;

/** A kernel that accepts everything and stores nothing. */
export function bottomless(transact: Nftables["transact"]): Nftables {
  return {
    family: "ip",
    transact,
    read: async () => undefined,
    mark: async () => ({ generation: 1, commits: 0 }),
    generationIfUntouched: async () => undefined,
    readElements: async () => undefined,
    withCatchAll: async () => [],
    readTargets: async () => new Map(),
    readCounters: async () => new Map(),
    watch: async (_onChange, signal) => void (await once(signal, "abort")),
  };
}

export class ChangeCostSubject {
  readonly #endpointsEach: number;
  readonly #stop = new AbortController();
  readonly #services = new PassThrough();
  readonly #slices = new PassThrough();
  readonly #proxier: Proxier;
  readonly #dispatcher: DualStackDispatcher;
  readonly #running: Promise<unknown>[] = [];
  readonly #metrics = createMetrics();
  #version = 0;
  /** The backend has programmed the running sync. */
  #isProgrammed = false;
  #synced = Promise.withResolvers<void>();
  /** What the caches hold. */
  #taken = 0;

  constructor(endpointsEach: number, backend: Backend) {
    this.#endpointsEach = endpointsEach;
    const log = createLogger({ write: () => {} });
    const sync = backend.sync.bind(backend);
    const watched: Partial<Backend> = {
      sync: async (...args) => {
        const outcome = await sync(...args);
        this.#isProgrammed = true;
        return outcome;
      },
    };
    const metrics = this.#metrics.syncMetrics("IPv4");
    const health = new ProxyHealth({ clock: systemClock, syncPeriodMs: SYNC_PERIOD_MS });
    this.#proxier = new Proxier({
      nodeName: NODE_NAME,
      backend: Object.assign(backend, watched),
      metrics: {
        ...metrics,
        // The last that a sync does, after health and all that follows the rules.
        observeSync: (...args) => {
          metrics.observeSync(...args);
          if (this.#isProgrammed) setImmediate(() => this.#onSynced());
        },
      },
      health,
      serviceHealth: new ServiceHealth({
        family: "IPv4",
        addresses: "all",
        isProxyHealthy: () => health.isHealthy(),
        log,
        onListenFailure() {},
      }),
      conntrack: NO_CONNTRACK,
      periods: { minMs: 0, isMinChosen: true, syncMs: SYNC_PERIOD_MS },
      allowExternalIPs: true,
      clock: systemClock,
      log,
    });
    this.#dispatcher = new DualStackDispatcher({ nodeName: NODE_NAME, log });
    this.#dispatcher.attach([this.#proxier]);
    const [services, endpointSlices] = CLUSTER_RESOURCES;
    this.#running.push(
      this.#follow(services, new ObjectCache(services, this.#dispatcher, log), this.#services),
      this.#follow(endpointSlices, new ObjectCache(endpointSlices, this.#dispatcher, log), this.#slices),
      this.#proxier.run(this.#stop.signal),
    );
  }

  /** Resolves at the end of the next sync to end. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  /** Loads the cluster as a watch does, and programs it. */
  async load(services: number): Promise<void> {
    for (let index = 0; index < services; index += 1) {
      const { service, slice } = this.service(index, "ADDED");
      this.pushService(service);
      this.pushSlice(slice);
    }
    while (this.#taken < 2 * services) await new Promise((resolve) => setImmediate(resolve));
    const { synced } = this;
    this.#dispatcher.onSynced("services");
    this.#dispatcher.onSynced("endpointSlices");
    await synced;
  }

  /** The line that replaces an endpoint of a service. */
  replacedEndpoint(index: number, generation: number): Buffer {
    return this.#line("MODIFIED", "EndpointSlice", apiSlice(index, this.#endpointsEach, generation, 0));
  }

  /** The lines that add or delete a service with its slice. */
  service(index: number, type: "ADDED" | "DELETED"): { readonly service: Buffer; readonly slice: Buffer } {
    return {
      service: this.#line(type, "Service", apiService(index)),
      slice: this.#line(type, "EndpointSlice", apiSlice(index, this.#endpointsEach, 0, 0)),
    };
  }

  pushService(line: Buffer): void {
    this.#services.write(line);
  }

  pushSlice(line: Buffer): void {
    this.#slices.write(line);
  }

  /** One scrape. @returns its bytes. */
  async scrape(): Promise<number> {
    return (await this.#metrics.families.render()).length;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    this.#services.end();
    this.#slices.end();
    await Promise.all(this.#running);
  }

  #onSynced(): void {
    const { resolve } = this.#synced;
    this.#isProgrammed = false;
    this.#synced = Promise.withResolvers();
    resolve();
  }

  #line(type: string, kind: string, object: object): Buffer {
    this.#version += 1;
    const { metadata, ...rest } = object as { readonly metadata?: object };
    const versioned = { ...metadata, resourceVersion: String(this.#version) };
    return Buffer.from(`${JSON.stringify({ type, object: { kind, metadata: versioned, ...rest } })}\n`);
  }

  async #follow<K extends ObjectKind>(
    resource: WatchedResource<K>,
    cache: ObjectCache<K>,
    body: AsyncIterable<Buffer>,
  ): Promise<void> {
    const transport = { host: "memory", send: async () => ({ contentType: "application/json", body }) };
    const onVersion = (): void => {
      this.#taken += 1;
    };
    const options = { resource, cache, query: {}, accept: "", answerMs: 0, onProgress() {}, onVersion, onOpen() {} };
    await followWatch({ ...options, transport }, this.#stop.signal);
  }
}
