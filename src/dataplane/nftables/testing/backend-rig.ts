/**
 * The nftables backend on a kernel in memory, or on a real one, driven as the proxier drives it: what a sync could not
 * finish is given to the next one again.
 */

import type { MemoryNftKernelOptions } from "../../../../testkit/fakes/nftables/memory-nftables.ts";
import { MemoryNftKernel } from "../../../../testkit/fakes/nftables/memory-nftables.ts";
import { testYielder } from "../../../async/testing/test-yielder.ts";
import type { Nftables, NftOperation } from "../../../kernel/nftables/nftables.ts";
import type { Json } from "../../../kernel/nftables/ruleset-json.ts";
import { type Facts, type Logger, silentLogger } from "../../../logging/logger.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import type { NodePortIPs } from "../../../model/node-port-addresses.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { ip } from "../../../model/testing/records.ts";
import type { IpFamily } from "../../../net/ip.ts";
import type { LostRules, SyncOutcome } from "../../../sync/backend.ts";
import { NftablesBackend } from "../backend.ts";
import type { PlanConfig } from "../plan-options.ts";

const CONFIGS: Readonly<Record<IpFamily, PlanConfig>> = {
  IPv4: {
    family: "IPv4",
    nodeName: "node-a",
    nodeIP: ip("192.168.0.2"),
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "interface", name: "cni0" },
  },
  IPv6: {
    family: "IPv6",
    nodeName: "node-a",
    nodeIP: ip("fd00:200::2"),
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "interface", name: "cni0" },
  },
};

/** What the model says; live. */
export interface ModelView {
  readonly services: ReadonlyMap<string, ServicePort>;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
}

/** What belongs to the node; may be changed between syncs, a full one takes it over. */
export interface NodeView {
  nodePortIPs: NodePortIPs | undefined;
  serviceCIDRs: readonly string[];
  zone: string | undefined;
}

export interface LogLine {
  readonly level: "warn" | "error";
  readonly message: string;
  readonly error?: unknown;
  readonly facts: Facts;
}

export interface BackendRigOptions extends MemoryNftKernelOptions {
  readonly family?: IpFamily;
  /** Where the rules go. @default a kernel in memory, {@link BackendRig.kernel} */
  readonly connect?: () => Nftables;
  /** See `NftablesBackendOptions`. */
  readonly portsAtOnce?: number;
}

export class BackendRig {
  readonly kernel: MemoryNftKernel;
  readonly node: NodeView = { nodePortIPs: { kind: "ips", ips: [] }, serviceCIDRs: [], zone: undefined };
  readonly log: LogLine[] = [];
  readonly metrics = { syncFailures: 0, cleanupFailures: 0 };
  readonly #model: ModelView;
  readonly #config: PlanConfig;
  readonly #connect: () => Nftables;
  readonly #portsAtOnce: number | undefined;
  /** What the backend asked to have repaired: a full sync, or these ports. */
  readonly lost: (LostRules | undefined)[] = [];
  /** Monotonic. */
  nowMs = 0;
  backend: NftablesBackend;
  #stop = new AbortController();
  #stopWatching = new AbortController();
  #pending = new Set<string>();
  #needsFullSync = true;
  #hasLost = false;

  constructor(model: ModelView, { family = "IPv4", connect, portsAtOnce, ...options }: BackendRigOptions = {}) {
    this.#model = model;
    this.#config = CONFIGS[family];
    this.kernel = new MemoryNftKernel(family === "IPv4" ? "ip" : "ip6", options);
    this.#portsAtOnce = portsAtOnce;
    this.#connect = connect ?? (() => this.kernel.connect());
    this.backend = this.#start();
  }

  #start(): NftablesBackend {
    const record =
      (level: LogLine["level"]) =>
      (message: string, ...rest: readonly unknown[]): void => {
        const facts = (level === "error" ? rest[1] : rest[0]) as Facts | undefined; // the logger's signatures
        const line = { level, message, facts: facts ?? {} };
        this.log.push(level === "error" ? { ...line, error: rest[0] } : line);
      };
    const log: Logger = { ...silentLogger, warn: record("warn"), error: record("error"), with: () => log };
    const backend = new NftablesBackend({
      config: this.#config,
      nft: this.#connect(),
      nodePortIPs: async () => this.node.nodePortIPs,
      metrics: {
        syncFailures: { inc: () => void this.metrics.syncFailures++ },
        cleanupFailures: { inc: () => void this.metrics.cleanupFailures++ },
      },
      log,
      nowMs: () => this.nowMs,
      yielder: testYielder,
      ...(this.#portsAtOnce !== undefined && { portsAtOnce: this.#portsAtOnce }),
    });
    const onLost = (lost?: LostRules): void => {
      this.lost.push(lost);
      this.#hasLost = true;
      if (lost === undefined) this.#needsFullSync = true;
      else for (const port of lost.ports) this.#pending.add(port);
    };
    // Watching in memory cannot fail unless a test says so; that test looks at the log itself.
    backend
      .monitor(onLost, AbortSignal.any([this.#stop.signal, this.#stopWatching.signal]))
      .catch((error: unknown) => log.error("watching failed", error));
    return backend;
  }

  /** The process ends and another one begins: memory is gone, the kernel stays. */
  restart(): void {
    this.#stop.abort();
    this.#stop = new AbortController();
    this.#stopWatching = new AbortController();
    this.#needsFullSync = true;
    this.#pending = new Set();
    this.backend = this.#start();
  }

  /** Whether a failed sync, or damage, calls for another one. */
  get isSyncDue(): boolean {
    return this.#needsFullSync || this.#hasLost || this.#pending.size > 0;
  }

  /** These ports, or their endpoints, are not what they were. */
  touch(keys: Iterable<string>): void {
    for (const key of keys) this.#pending.add(key);
  }

  /** Something that concerns everything is not what it was. */
  requireFullSync(): void {
    this.#needsFullSync = true;
  }

  async sync(options: { readonly full?: boolean } = {}): Promise<SyncOutcome> {
    const isFullSync = this.#needsFullSync || options.full === true;
    const changedPorts = new Set(this.#pending);
    this.#needsFullSync = false;
    this.#hasLost = false;
    this.#pending = new Set();
    const { services, endpoints } = this.#model;
    const { zone, serviceCIDRs } = this.node;
    const input = { isFullSync, services, endpoints, endpointCount: 0, changedPorts, zone, serviceCIDRs };
    try {
      return await this.backend.sync(input, this.#stop.signal);
    } catch (error) {
      this.touch(changedPorts);
      this.#needsFullSync = true;
      throw error;
    }
  }

  /** Syncs, and gives the operations that reached the kernel. */
  async operationsOf(options: { readonly full?: boolean } = {}): Promise<NftOperation[]> {
    this.kernel.takeOperations();
    await this.sync(options);
    return this.kernel.takeOperations();
  }

  list(): Json[] {
    return this.kernel.list();
  }

  /** A kernel as one full sync from nothing leaves it. */
  async fromNothing(): Promise<MemoryNftKernel> {
    const rig = new BackendRig(this.#model, { family: this.#config.family });
    Object.assign(rig.node, this.node);
    await rig.sync();
    rig.close();
    return rig.kernel;
  }

  /** Time passes, for the backend and for the kernel. */
  passTime(ms: number): void {
    this.nowMs += ms;
    this.kernel.passTime();
  }

  /** Notices of what others do no longer arrive; syncs go on. */
  stopWatching(): void {
    this.#stopWatching.abort();
  }

  /** Ends watching, and a sync that is under way. */
  close(): void {
    this.#stop.abort();
  }
}

/** An operation in one word and its object, for comparing: `add-rule service-…`. Pure. */
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
