/**
 * The ipvs backend on an in-memory kernel, driven as the proxier drives it.
 */
import { type LogLine, recordingLogger } from "../../../../testkit/dataplane/recording-logger.ts";
import type { SyncDriver } from "../../../../testkit/dataplane/sync-driver.ts";
import { TestCluster } from "../../../../testkit/dataplane/test-cluster.ts";
import "../../../async/testing/test-yielder.ts";
import { FakeClock } from "../../../agent/sync/testing/fake-clock.ts";
import type { SyncOutcome } from "../../../contract/backend.ts";
import { nodePortAddresses } from "../../../model/node-port-addresses.ts";
import { ip } from "../../../model/testing/records.ts";
import type { Cidr, IpFamily } from "../../../net/ip.ts";
import { IpvsBackend } from "../backend.ts";
import type { PlanConfig } from "../plan-service-port.ts";
import { MemoryNode, NODE_IPS } from "./memory-node.ts";
import type { IpvsKernel, NodeState } from "./node-state.ts";

export interface BackendRigOptions {
  readonly family?: IpFamily;
  readonly node?: MemoryNode;
  /** A kernel to use instead of the node's. */
  readonly kernel?: IpvsKernel;
  readonly config?: Partial<PlanConfig>;
  readonly excludeCIDRs?: readonly string[];
  readonly nodePortAddresses?: readonly string[];
}

/** The verification period of the backend in tests. */
export const VERIFY_PERIOD_MS = 30_000;

export class BackendRig {
  readonly node: MemoryNode;
  readonly clock = new FakeClock();
  readonly log: LogLine[] = [];
  readonly metrics = { restoreFailures: 0 };
  /** How often the node's parameters were restored. */
  settingsRestored = 0;
  /** How often the backend requested a repair, and a sync for changed addresses. */
  readonly asked = { repairs: 0, syncs: 0 };
  backend: IpvsBackend;
  readonly driver: SyncDriver;
  readonly #options: BackendRigOptions;
  readonly #family: IpFamily;
  #stop = new AbortController();
  #monitoring: Promise<void> | undefined;

  constructor(driver: SyncDriver, options: BackendRigOptions = {}) {
    this.driver = driver;
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
      hashSeed: 1,
      masqueradeAll: false,
      detector: { kind: "interface", name: "cni0" },
      scheduler: "rr",
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
      log: recordingLogger(this.log),
    });
  }

  /** Starts the work between syncs, on {@link BackendRig.clock}. */
  watch(): void {
    const onLost = (): void => {
      this.asked.repairs++;
      this.driver.lose();
    };
    const requestSync = (): void => {
      this.asked.syncs++;
    };
    this.#monitoring = this.backend.monitor(onLost, this.#stop.signal, requestSync);
  }

  /** Simulates a kill and a new process: memory is gone, the kernel stays. */
  async restart(): Promise<void> {
    await this.close();
    this.#stop = new AbortController();
    this.driver.forget();
    this.backend = this.#newBackend();
  }

  sync(options: { readonly full?: boolean } = {}): Promise<SyncOutcome> {
    return this.driver.sync(this.backend, { ...options, signal: this.#stop.signal });
  }

  /** The state after one full sync on a fresh node with the same addresses. */
  async fromNothing(prepare: (node: MemoryNode) => void = () => {}): Promise<NodeState> {
    const node = new MemoryNode(this.#family);
    prepare(node);
    const { kernel: _, ...options } = this.#options;
    await this.driver.syncOther(new BackendRig(this.driver, { ...options, node }).backend);
    return await node.state();
  }

  /** The logged messages of a level. */
  logged(level: LogLine["level"]): string[] {
    return this.log.filter((line) => line.level === level).map(({ message }) => message);
  }

  /** Ends watching. */
  async close(): Promise<void> {
    // Without a reason, abort would create an error with a stack.
    this.#stop.abort("the rig has ended");
    await this.#monitoring;
    this.#monitoring = undefined;
  }
}

/** A test cluster and the rig that syncs it. */
export type TestModel = TestCluster & { readonly rig: BackendRig };

export function newModel(options?: BackendRigOptions): TestModel {
  const cluster = new TestCluster();
  return Object.assign(cluster, { rig: new BackendRig(cluster.driver, options) });
}
