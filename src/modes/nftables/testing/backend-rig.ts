/**
 * The nftables backend on a kernel in memory, or on a real one, driven as the proxier drives it.
 */

import { type LogLine, recordingLogger } from "../../../../testkit/dataplane/recording-logger.ts";
import type { SyncDriver } from "../../../../testkit/dataplane/sync-driver.ts";
import { TestCluster } from "../../../../testkit/dataplane/test-cluster.ts";
import { MemoryNftKernel, type MemoryNftKernelOptions } from "../../../../testkit/fakes/nftables/memory-nftables.ts";
import "../../../async/testing/test-yielder.ts";
import type { LostRules, SyncOutcome } from "../../../contract/backend.ts";
import type { Counted } from "../../../contract/config/config.ts";
import { CURRENT_RELEASE, type Release } from "../../../contract/config/release.ts";
import type { Nftables, NftOperation } from "../../../kernel/nftables/nftables.ts";
import type { Json } from "../../../kernel/nftables/ruleset-json.ts";
import type { NodePortIPs } from "../../../model/node-port-addresses.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { ip } from "../../../model/testing/records.ts";
import type { IpFamily } from "../../../net/ip.ts";
import type { Protocol } from "../../../net/protocol.ts";
import { NftablesBackend } from "../backend.ts";
import type { LayoutName } from "../layout-name.ts";
import { servicePortChains } from "../names.ts";
import type { PlanConfig } from "../plan-options.ts";

/** The plan configuration by family. */
export const CONFIGS: Readonly<Record<IpFamily, PlanConfig>> = {
  IPv4: {
    family: "IPv4",
    nodeName: "node-a",
    nodeIP: ip("192.168.0.2"),
    masqueradeMark: 0x4000,
    hashSeed: 1,
    masqueradeAll: false,
    detector: { kind: "interface", name: "cni0" },
    release: CURRENT_RELEASE,
  },
  IPv6: {
    family: "IPv6",
    nodeName: "node-a",
    nodeIP: ip("fd00:200::2"),
    masqueradeMark: 0x4000,
    hashSeed: 1,
    masqueradeAll: false,
    detector: { kind: "interface", name: "cni0" },
    release: CURRENT_RELEASE,
  },
};

/** Longer than deletions are deferred. */
const PERIOD_MS = 30_000;

/** The abort reason of a rig: without one, each abort makes an error with a stack, which takes as long as a short sync. */
const ENDED = "the rig has ended";

/** Facts of the node; may be changed between syncs, and the next full sync applies them. */
export interface NodeView {
  nodePortIPs: NodePortIPs | undefined;
}

export interface BackendRigOptions extends MemoryNftKernelOptions {
  readonly family?: IpFamily;
  /** @default "Compatible" */
  readonly layout?: LayoutName;
  /** @default CURRENT_RELEASE */
  readonly release?: Release;
  /** Where the rules go. @default a kernel in memory, {@link BackendRig.kernel} */
  readonly connect?: () => Nftables;
  /** As in `NftablesBackendOptions`. */
  readonly portsAtOnce?: number;
}

export class BackendRig {
  readonly kernel: MemoryNftKernel;
  readonly node: NodeView = { nodePortIPs: { kind: "ips", ips: [] } };
  readonly log: LogLine[] = [];
  readonly metrics = { syncFailures: 0, cleanupFailures: 0 };
  readonly driver: SyncDriver;
  readonly #config: PlanConfig;
  /** For the next process that is started. */
  layout: LayoutName;
  /** Likewise. */
  release: Release;
  /** Likewise. */
  counted: Counted = "None";
  /** Likewise. */
  rejectedAtLocalhost: readonly Protocol[] = [];
  readonly #connect: () => Nftables;
  readonly #portsAtOnce: number | undefined;
  /** Resolves when the backend stops watching. */
  watching: Promise<void> = Promise.resolve();
  /** The repairs that the backend requested: a full sync, or these ports. */
  readonly lost: (LostRules | undefined)[] = [];
  /** Monotonic. */
  nowMs = 0;
  /** Sleepers that wait for the end of a sync period. */
  readonly #sleepers = new Set<() => void>();
  backend: NftablesBackend;
  #stop = new AbortController();
  #stopWatching = new AbortController();

  constructor(
    driver: SyncDriver,
    {
      family = "IPv4",
      layout = "Compatible",
      release = CURRENT_RELEASE,
      connect,
      portsAtOnce,
      ...options
    }: BackendRigOptions = {},
  ) {
    this.driver = driver;
    this.layout = layout;
    this.release = release;
    this.#config = CONFIGS[family];
    this.kernel = new MemoryNftKernel(family === "IPv4" ? "ip" : "ip6", options);
    this.#portsAtOnce = portsAtOnce;
    this.#connect = connect ?? (() => this.kernel.connect());
    this.backend = this.#start();
  }

  #start(): NftablesBackend {
    const log = recordingLogger(this.log);
    const backend = new NftablesBackend({
      config: {
        ...this.#config,
        release: this.release,
        counted: this.counted,
        ...(this.rejectedAtLocalhost.length > 0 && { rejectedAtLocalhost: this.rejectedAtLocalhost }),
      },
      layout: this.layout,
      nft: this.#connect(),
      nodePortIPs: async () => this.node.nodePortIPs,
      metrics: {
        syncFailures: { inc: () => void this.metrics.syncFailures++ },
        cleanupFailures: { inc: () => void this.metrics.cleanupFailures++ },
      },
      log,
      clock: { monotonicMs: () => this.nowMs, sleep: (_ms, signal) => this.#periodEnd(signal) },
      ...(this.#portsAtOnce !== undefined && { portsAtOnce: this.#portsAtOnce }),
    });
    const onLost = (lost?: LostRules): void => {
      this.lost.push(lost);
      this.driver.lose(lost);
    };
    // Watching in memory fails only in a test that makes it fail, and that test checks the log itself.
    this.watching = backend
      .monitor(onLost, AbortSignal.any([this.#stop.signal, this.#stopWatching.signal]), () =>
        this.driver.requireFullSync(),
      )
      .catch((error: unknown) => log.error("watching failed", error));
    return backend;
  }

  /** The process stops and another one starts: memory is lost, the kernel keeps its state. */
  restart(): void {
    this.driver.forget();
    this.#begin();
  }

  #begin(): void {
    this.#stop.abort(ENDED);
    this.#stop = new AbortController();
    this.#stopWatching = new AbortController();
    this.backend = this.#start();
  }

  sync(options: { readonly full?: boolean } = {}): Promise<SyncOutcome> {
    return this.driver.sync(this.backend, { ...options, signal: this.#stop.signal });
  }

  /** Syncs. @returns the operations that reached the kernel. */
  async operationsOf(options: { readonly full?: boolean } = {}): Promise<NftOperation[]> {
    this.kernel.takeOperations();
    await this.sync(options);
    return this.kernel.takeOperations();
  }

  /** Ends a sync period: the backend checks whether other programs changed the table. Resolves after the check. */
  async endPeriod(): Promise<void> {
    this.passTime(PERIOD_MS);
    const sleepers = [...this.#sleepers];
    for (const end of sleepers) end();
    while (this.#sleepers.size < sleepers.length) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Ends every sleep of the backend. */
  wake(): void {
    for (const end of [...this.#sleepers]) end();
  }

  #periodEnd(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#sleepers.delete(end);
        resolve();
      };
      this.#sleepers.add(end);
      signal.addEventListener("abort", end, { once: true });
    });
  }

  list(): Json[] {
    return this.kernel.list();
  }

  /** A kernel after one full sync from nothing. */
  async fromNothing(): Promise<MemoryNftKernel> {
    const rig = new BackendRig(this.driver, {
      family: this.#config.family,
      layout: this.layout,
      release: this.release,
    });
    Object.assign(rig.node, this.node);
    if (this.rejectedAtLocalhost.length > 0) {
      rig.rejectedAtLocalhost = this.rejectedAtLocalhost;
      rig.#begin();
    }
    await this.driver.syncOther(rig.backend);
    rig.close();
    return rig.kernel;
  }

  /** Lets time pass for the backend and for the kernel. */
  passTime(ms: number): void {
    this.nowMs += ms;
    this.kernel.passTime();
  }

  /** Ends the watch for changes by other programs; syncs go on. */
  stopWatching(): void {
    this.#stopWatching.abort(ENDED);
  }

  /** Ends the watch, and a running sync. */
  close(): void {
    this.#stop.abort(ENDED);
  }
}

/** A test cluster, and the rig that syncs it. */
export type TestModel = TestCluster & { readonly rig: BackendRig };

export function newModel(options?: BackendRigOptions): TestModel {
  const cluster = new TestCluster();
  return Object.assign(cluster, { rig: new BackendRig(cluster.driver, options) });
}

/** A service port's chain of the Cluster policy. */
export function clusterChain({ name }: ServicePort): string {
  return servicePortChains(name).cluster;
}

/** An operation as its kind and object, for comparisons: `add-rule service-…`. */
export function operationText(operation: NftOperation): string {
  switch (operation.kind) {
    case "add-table":
    case "delete-table":
      return operation.kind;
    case "add-chain":
      return `add-chain ${operation.chain.name}`;
    case "flush-chain":
    case "delete-chain":
    case "add-rule":
      return `${operation.kind} ${operation.chain}`;
    case "add-counter":
    case "delete-counter":
      return `${operation.kind} ${operation.counter}`;
    case "delete-set":
      return `delete-set ${operation.set}`;
    case "add-set":
    case "flush-set":
      return `${operation.kind} ${operation.set.name}`;
    case "add-elements":
      return `add-elements ${operation.set.name} ${operation.elements.map(({ key }) => key.join(" . ")).join(", ")}`;
    case "delete-elements":
      return `delete-elements ${operation.set.name} ${operation.keys.map((key) => key.join(" . ")).join(", ")}`;
  }
}
