/**
 * The ipvs backend on a kernel in memory, driven as the proxier drives it: what a sync could not finish is given to the next
 * one again.
 */
import { testYielder } from "../../../async/testing/test-yielder.ts";
import type { Facts, Logger } from "../../../logging/logger.ts";
import { silentLogger } from "../../../logging/logger.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import { nodePortAddresses } from "../../../model/node-port-addresses.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { ip } from "../../../model/testing/records.ts";
import type { Cidr, IpFamily } from "../../../net/ip.ts";
import type { SyncOutcome } from "../../../sync/backend.ts";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { IpvsBackend } from "../backend.ts";
import type { PlanConfig } from "../plan-options.ts";
import { MemoryNode, NODE_IPS } from "./memory-node.ts";
import type { IpvsKernel, NodeState } from "./node-state.ts";

/** What the model says; live. */
export interface ModelView {
  readonly services: ReadonlyMap<string, ServicePort>;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
}

export interface LogLine {
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly error?: unknown;
  readonly facts: Facts;
}

export interface BackendRigOptions {
  readonly family?: IpFamily;
  readonly node?: MemoryNode;
  /** A kernel to work on instead of the node's. */
  readonly kernel?: IpvsKernel;
  readonly config?: Partial<PlanConfig>;
  readonly excludeCIDRs?: readonly string[];
  readonly nodePortAddresses?: readonly string[];
}

/** How often the backend verifies in tests. */
export const VERIFY_PERIOD_MS = 30_000;

export class BackendRig {
  readonly node: MemoryNode;
  readonly clock = new FakeClock();
  readonly log: LogLine[] = [];
  readonly metrics = { restoreFailures: 0 };
  /** How often the node's parameters were set again. */
  settingsRestored = 0;
  zone: string | undefined;
  /** How often the backend said that something was lost, and that the node has changed. */
  readonly asked = { repairs: 0, syncs: 0 };
  backend: IpvsBackend;
  readonly #model: ModelView;
  readonly #options: BackendRigOptions;
  readonly #family: IpFamily;
  #stop = new AbortController();
  #monitoring: Promise<void> | undefined;
  #pending = new Set<string>();
  #needsFullSync = true;

  constructor(model: ModelView, options: BackendRigOptions = {}) {
    this.#model = model;
    this.#options = options;
    this.#family = options.family ?? "IPv4";
    this.node = options.node ?? new MemoryNode(this.#family);
    this.backend = this.#newBackend();
  }

  get config(): PlanConfig {
    return {
      family: this.#family,
      nodeName: "node-a",
      nodeIP: ip(NODE_IPS[this.#family]),
      masqueradeMark: 0x4000,
      masqueradeAll: false,
      detector: { kind: "interface", name: "cni0" },
      scheduler: "rr",
      hasRandomFully: true,
      ...this.#options.config,
    };
  }

  #newBackend(): IpvsBackend {
    const { ipvs, ipset, links, iptables } = this.#options.kernel ?? this.node;
    const { excludeCIDRs = [], nodePortAddresses: configured = [] } = this.#options;
    return new IpvsBackend({
      config: this.config,
      ipvs,
      ipset,
      links,
      iptables,
      nodePortAddresses: nodePortAddresses(this.#family, configured),
      excludeCIDRs: excludeCIDRs as readonly Cidr[], // the tests write canonical ones
      restoreSettings: async () => void this.settingsRestored++,
      metrics: { restoreFailures: { inc: () => void this.metrics.restoreFailures++ } },
      verifyPeriodMs: VERIFY_PERIOD_MS,
      clock: this.clock,
      yielder: testYielder,
      log: this.#recorder(),
    });
  }

  #recorder(): Logger {
    const record =
      (level: LogLine["level"]) =>
      (message: string, ...rest: readonly unknown[]): void => {
        const facts = (level === "error" ? rest[1] : rest[0]) as Facts | undefined; // the logger's signatures
        const line = { level, message, facts: facts ?? {} };
        this.log.push(level === "error" ? { ...line, error: rest[0] } : line);
      };
    const log: Logger = {
      ...silentLogger,
      info: record("info"),
      warn: record("warn"),
      error: record("error"),
      with: () => log,
    };
    return log;
  }

  /** Starts what goes on between syncs; time is {@link BackendRig.clock}'s. */
  watch(): void {
    const onLost = (): void => {
      this.asked.repairs++;
      this.#needsFullSync = true;
    };
    const requestSync = (): void => {
      this.asked.syncs++;
    };
    this.#monitoring = this.backend.monitor(onLost, this.#stop.signal, requestSync);
  }

  /** The process is killed and another one begins: memory is gone, the kernel stays. */
  async restart(): Promise<void> {
    await this.close();
    this.#stop = new AbortController();
    this.#needsFullSync = true;
    this.#pending = new Set();
    this.backend = this.#newBackend();
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
    this.#pending = new Set();
    const { services, endpoints } = this.#model;
    const input = {
      isFullSync,
      services,
      endpoints,
      endpointCount: 0,
      changedPorts,
      zone: this.zone,
      serviceCIDRs: [],
    };
    try {
      return await this.backend.sync(input, this.#stop.signal);
    } catch (error) {
      this.touch(changedPorts);
      this.#needsFullSync = true;
      throw error;
    }
  }

  /** What one full sync leaves on a node of the same addresses. */
  async fromNothing(prepare: (node: MemoryNode) => void = () => {}): Promise<NodeState> {
    const node = new MemoryNode(this.#family);
    prepare(node);
    const { kernel: _, ...options } = this.#options;
    const rig = new BackendRig(this.#model, { ...options, node });
    rig.zone = this.zone;
    await rig.sync();
    return await node.state();
  }

  /** Messages of what was logged, by level. */
  logged(level: LogLine["level"]): string[] {
    return this.log.filter((line) => line.level === level).map(({ message }) => message);
  }

  /** Ends watching. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#monitoring;
    this.#monitoring = undefined;
  }
}
