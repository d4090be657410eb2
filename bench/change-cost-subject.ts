/**
 * The daemon's way from a line of the watch to the bytes for the kernel, with everything around it but the kernel and the
 * network: source, projection, model, proxier, metrics, health, nftables backend, encoding. Both watches are streams in memory; the
 * kernel takes every batch.
 */

import { systemClock } from "../src/async/clock.ts";
import type { Transport } from "../src/cluster/apiserver/connection/transport.ts";
import { ObjectCache } from "../src/cluster/apiserver/watch/object-cache.ts";
import { CLUSTER_RESOURCES, type WatchedResource } from "../src/cluster/apiserver/watch/resources.ts";
import { followWatch } from "../src/cluster/apiserver/watch/watch-reader.ts";
import type { ObjectKind } from "../src/cluster/object-source.ts";
import { CURRENT_RELEASE } from "../src/config/release.ts";
import { DeferredSink } from "../src/daemon/deferred-sink.ts";
import { NftablesBackend } from "../src/dataplane/nftables/backend.ts";
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { defineNftablesMetrics } from "../src/dataplane/nftables/metrics.ts";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { NO_CONNTRACK } from "../src/kernel/conntrack/conntrack.ts";
import { encodeTransaction } from "../src/kernel/nftables/netlink-transaction.ts";
import { LAYOUTS } from "../src/kernel/nftables/netlink-values.ts";
import type { Nftables, NftMark } from "../src/kernel/nftables/nftables.ts";
import { createLogger } from "../src/logging/create-logger.ts";
import { ProxyHealth } from "../src/server/health/proxy-health.ts";
import { createServiceHealth } from "../src/server/health/service-health.ts";
import { createMetrics } from "../src/server/metrics/metrics.ts";
import type { Backend, SyncInput, SyncOutcome } from "../src/sync/backend.ts";
import { DualStackDispatcher } from "../src/sync/dual-stack.ts";
import { Proxier } from "../src/sync/proxier.ts";
import { apiService, apiSlice } from "./api-objects.ts";
import { benchConfig } from "./subject.ts";

const SYNC_PERIOD_MS = 30_000;
const LOAD_CHUNK_BYTES = 256 * 1024;

/** The body of a watch that tests write. */
class WatchStream {
  #chunks: Buffer[] = [];
  #wake: (() => void) | undefined;
  #isEnded = false;

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#wake?.();
  }

  end(): void {
    this.#isEnded = true;
    this.#wake?.();
  }

  async *body(): AsyncIterable<Buffer> {
    for (;;) {
      const chunks = this.#chunks;
      this.#chunks = [];
      yield* chunks;
      if (this.#chunks.length > 0) continue;
      if (this.#isEnded) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** Takes everything, and holds nothing. */
class BottomlessKernel implements Nftables {
  readonly family = "ip";
  transactions = 0;
  bytes = 0;

  async transact(operations: Parameters<Nftables["transact"]>[0]): Promise<void> {
    const { batch } = await encodeTransaction({ layout: LAYOUTS.ip, table: TABLE }, operations);
    batch.finish();
    this.transactions += 1;
    this.bytes += batch.byteLength;
    batch.messages.release();
  }

  async read(): Promise<undefined> {
    return undefined;
  }

  async readCounters(): Promise<ReadonlyMap<string, number>> {
    return new Map();
  }

  async mark(): Promise<NftMark> {
    return { generation: 1, commits: 0 };
  }

  async generationIfUntouched(): Promise<undefined> {
    return undefined;
  }

  async readElements(): Promise<undefined> {
    return undefined;
  }

  async watch(_onChange: unknown, signal: AbortSignal): Promise<void> {
    await systemClock.sleep(Number.MAX_SAFE_INTEGER, signal);
  }
}

/** Tells when a sync has ended. */
class WatchedBackend implements Backend {
  readonly family = "IPv4";
  readonly usesServiceCIDRs = true;
  readonly #backend: Backend;
  readonly #onSynced: () => void;

  constructor(backend: Backend, onSynced: () => void) {
    this.#backend = backend;
    this.#onSynced = onSynced;
  }

  get mode(): string {
    return this.#backend.mode;
  }

  get restMs(): number {
    return this.#backend.restMs ?? 0;
  }

  async monitor(...args: Parameters<NonNullable<Backend["monitor"]>>): Promise<void> {
    await this.#backend.monitor?.(...args);
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const outcome = await this.#backend.sync(input, signal);
    this.#onSynced();
    return outcome;
  }
}

export class ChangeCostSubject {
  readonly kernel = new BottomlessKernel();
  readonly #endpointsEach: number;
  readonly #stop = new AbortController();
  readonly #services = new WatchStream();
  readonly #slices = new WatchStream();
  readonly #proxier: Proxier;
  readonly #dispatcher: DualStackDispatcher;
  readonly #running: Promise<unknown>[] = [];
  readonly #metrics = createMetrics();
  #version = 0;
  #synced = Promise.withResolvers<void>();
  /** What the caches have taken. */
  #taken = 0;

  /**
   * @param isPaced whether syncs follow each other as in the daemon, or at once.
   * @param subject a backend, or the layout of an nftables one over {@link kernel}.
   */
  constructor(endpointsEach: number, isPaced: boolean, subject: LayoutName | Backend) {
    this.#endpointsEach = endpointsEach;
    const log = createLogger({ write: () => {} });
    const { localhostNodePorts: _no, conntrackLiberal: _none, ...config } = benchConfig();
    const backend =
      typeof subject === "object"
        ? subject
        : new NftablesBackend({
            config: { ...config, release: CURRENT_RELEASE },
            layout: subject,
            nft: this.kernel,
            nodePortIPs: async () => ({ kind: "ips", ips: [config.nodeIP] }),
            metrics: defineNftablesMetrics(this.#metrics.families)("IPv4"),
            log,
          });
    const health = new ProxyHealth({ clock: systemClock, syncPeriodMs: SYNC_PERIOD_MS });
    this.#proxier = new Proxier({
      nodeName: config.nodeName,
      backend: new WatchedBackend(backend, () => this.#onSynced()),
      metrics: this.#metrics.syncMetrics("IPv4"),
      health,
      serviceHealth: createServiceHealth({
        family: "IPv4",
        addresses: "all",
        isProxyHealthy: () => health.isHealthy(),
        log,
        onListenFailure() {},
      }),
      conntrack: NO_CONNTRACK,
      periods: { minMs: isPaced ? 1 : 0, isMinChosen: !isPaced, syncMs: SYNC_PERIOD_MS },
      allowExternalIPs: true,
      clock: systemClock,
      log,
    });
    this.#dispatcher = new DualStackDispatcher({ proxiers: [this.#proxier], nodeName: config.nodeName, log });
    const sink = new DeferredSink([]);
    sink.attach(this.#dispatcher);
    const [services, endpointSlices] = CLUSTER_RESOURCES;
    this.#running.push(
      this.#follow(services, new ObjectCache(services, sink, log, systemClock), this.#services),
      this.#follow(endpointSlices, new ObjectCache(endpointSlices, sink, log, systemClock), this.#slices),
      this.#dispatcher.run(this.#stop.signal),
    );
  }

  /** Resolves when the sync that ends next has ended. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  /** Brings the cluster in as a watch does, and programs it. */
  async load(services: number): Promise<void> {
    const each = this.#endpointsEach;
    await this.#bringIn(this.#services, services, (index) => apiService(index), "Service");
    await this.#bringIn(this.#slices, services, (index) => apiSlice(index, each, 0, 0), "EndpointSlice");
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
    this.#services.push(line);
  }

  pushSlice(line: Buffer): void {
    this.#slices.push(line);
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
    this.#synced = Promise.withResolvers();
    // What follows the rules is part of it: health, metrics.
    const settle = (): void => void (this.#proxier.status.isSyncing ? setImmediate(settle) : resolve());
    settle();
  }

  async #bringIn(stream: WatchStream, count: number, make: (index: number) => object, kind: string): Promise<void> {
    const until = this.#taken + count;
    let lines: Buffer[] = [];
    let bytes = 0;
    for (let index = 0; index < count; index += 1) {
      const line = this.#line("ADDED", kind, make(index));
      lines.push(line);
      bytes += line.length;
      if (bytes < LOAD_CHUNK_BYTES && index < count - 1) continue;
      stream.push(Buffer.concat(lines));
      lines = [];
      bytes = 0;
      await new Promise((resolve) => setImmediate(resolve));
    }
    while (this.#taken < until) await new Promise((resolve) => setImmediate(resolve));
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
    stream: WatchStream,
  ): Promise<void> {
    const transport: Pick<Transport, "host" | "send"> = {
      host: "memory",
      send: async () => ({ contentType: "application/json", body: stream.body() }),
    };
    const onVersion = (): void => {
      this.#taken += 1;
    };
    const options = { resource, cache, query: {}, accept: "", answerMs: 0, onProgress() {}, onVersion, onOpen() {} };
    await followWatch({ ...options, transport }, this.#stop.signal);
  }
}
