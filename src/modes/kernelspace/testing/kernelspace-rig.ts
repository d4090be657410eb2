/** The kernelspace backend on an in-memory HNS, driven as the proxier drives it. */
import { type LogLine, recordingLogger } from "../../../../testkit/dataplane/recording-logger.ts";
import type { SyncDriver } from "../../../../testkit/dataplane/sync-driver.ts";
import { TestCluster } from "../../../../testkit/dataplane/test-cluster.ts";
import { MemoryHcn, type MemoryHcnOptions } from "../../../../testkit/fakes/hcn/memory-hcn.ts";
import "../../../async/testing/test-yielder.ts";
import { FakeClock } from "../../../agent/sync/testing/fake-clock.ts";
import type { LostRules, SyncOutcome } from "../../../contract/backend.ts";
import { ip } from "../../../model/testing/records.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { KernelspaceBackend } from "../backend.ts";
import type { Hcn } from "../hcn/hcn.ts";
import { type JsonObject, listOf, objectOf, textOf } from "../hcn/json-fields.ts";
import type { KernelspaceMetrics } from "../metrics.ts";
import type { PlanConfig } from "../plan-service-port.ts";
import { hcnWith } from "../start.ts";

export interface RigOptions {
  readonly family?: IpFamily;
  /** An existing host. */
  readonly host?: MemoryHcn;
  /** @default {@link KernelspaceRig.failedCalls} */
  readonly metrics?: KernelspaceMetrics;
  /** The client of HNS. @default one of the backend's own */
  readonly client?: Hcn;
  readonly hcn?: MemoryHcnOptions;
  readonly type?: "Overlay" | "L2Bridge";
  readonly config?: Partial<PlanConfig>;
  readonly rootName?: string;
  readonly canModify?: boolean;
}

export const NETWORK = "cbr0";
export const NODE_IPS: Readonly<Record<IpFamily, string>> = { IPv4: "10.0.0.1", IPv6: "10::1" };
export const SOURCE_VIPS: Readonly<Record<IpFamily, string>> = { IPv4: "192.168.1.2", IPv6: "192::1:2" };
export const HOST_MAC = "00:11:22:33:44:55";
export const SYNC_PERIOD_MS = 30_000;
/** The polling period of HNS. */
export const LOOK_MS = 5_000;

/** Addresses of 192.168.2.0/24 are on the node 10.0.0.3: upstream's fixture (windows-practice.md §6). */
const REMOTE_SUBNET = {
  Type: "RemoteSubnetRoute",
  Settings: { DestinationPrefix: "192.168.2.0/24", IsolationId: 4096, ProviderAddress: "10.0.0.3" },
};

/** A host with an empty cluster network. */
export function newHost(type: "Overlay" | "L2Bridge" = "L2Bridge", options: MemoryHcnOptions = {}): MemoryHcn {
  const host = new MemoryHcn({ takesAnyAddress: true, ...options });
  host.addNetwork(NETWORK, type, type === "Overlay" ? [REMOTE_SUBNET] : []);
  return host;
}

export class KernelspaceRig {
  readonly host: MemoryHcn;
  readonly clock = new FakeClock();
  readonly log: LogLine[] = [];
  /** Failed calls for load balancers: verb, kind and error. */
  readonly failedCalls: string[] = [];
  readonly asked: (LostRules | "full" | "sync")[] = [];
  backend: KernelspaceBackend;
  readonly driver: SyncDriver;
  readonly #options: RigOptions;
  #stop = new AbortController();
  #monitoring: Promise<void> | undefined;

  constructor(driver: SyncDriver, options: RigOptions = {}) {
    this.driver = driver;
    this.#options = options;
    this.host = options.host ?? newHost(options.type, options.hcn);
    this.backend = this.#newBackend();
  }

  #newBackend(): KernelspaceBackend {
    const { family = "IPv4", type, config, rootName, canModify = true } = this.#options;
    return new KernelspaceBackend({
      config: {
        family,
        nodeName: "node-a",
        nodeIP: ip(NODE_IPS[family]),
        enableDsr: false,
        hasDsr: true,
        hasAffinity: true,
        sourceVip: type === "Overlay" ? ip(SOURCE_VIPS[family]) : undefined,
        healthPort: undefined,
        ...config,
      },
      hcn: this.#options.client ?? hcnWith(this.host, recordingLogger(this.log)),
      canModify,
      networkName: NETWORK,
      rootName,
      hostMac: HOST_MAC,
      hostMacs: new Set([HOST_MAC]),
      isHostAddress: (address) => address === NODE_IPS[family],
      metrics: this.#options.metrics ?? {
        countFailure: (verb, kind, error) => this.failedCalls.push(`${verb} ${kind} ${error}`),
      },
      syncPeriodMs: SYNC_PERIOD_MS,
      clock: this.clock,
      log: recordingLogger(this.log),
    });
  }

  sync(options: { readonly full?: boolean } = {}): Promise<SyncOutcome> {
    return this.driver.sync(this.backend, { ...options, signal: this.#stop.signal });
  }

  /** Starts the monitoring between syncs, on {@link KernelspaceRig.clock}. */
  watch(): void {
    const onLost = (lost?: LostRules): void => {
      this.asked.push(lost ?? "full");
      this.driver.lose(lost);
    };
    this.#monitoring = this.backend.monitor(onLost, this.#stop.signal, () => void this.asked.push("sync"));
  }

  /** Simulates a kill and a new process: memory is gone, HNS stays. */
  async restart(): Promise<void> {
    await this.close();
    this.#stop = new AbortController();
    this.driver.forget();
    this.backend = this.#newBackend();
  }

  async close(): Promise<void> {
    // Without a reason, abort would create an error with a stack.
    this.#stop.abort("the rig has ended");
    await this.#monitoring;
    this.#monitoring = undefined;
  }

  /** All objects of the host except networks, with addresses in place of IDs, in a fixed order. */
  state(): readonly string[] {
    return hostState(this.host);
  }

  logged(level: LogLine["level"]): string[] {
    return this.log.filter((line) => line.level === level).map(({ message }) => message);
  }
}

/** The state of a host, independent of IDs and of the order of creation. */
export function hostState(host: {
  documents(kind: "Endpoint" | "LoadBalancer"): ReadonlyMap<string, JsonObject>;
}): readonly string[] {
  const endpoints = new Map<string, string>();
  for (const [id, { IpConfigurations }] of host.documents("Endpoint")) {
    endpoints.set(
      id,
      listOf(IpConfigurations)
        .map((one) => textOf(objectOf(one).IpAddress))
        .join(","),
    );
  }
  const made = [...host.documents("Endpoint").values()].map(({ HostComputeNetwork: _, ...endpoint }) => endpoint);
  const loadBalancers = [...host.documents("LoadBalancer").values()].map((document) => {
    const names = listOf(document.HostComputeEndpoints).map((id) => endpoints.get(textOf(id)) ?? "gone");
    return { ...document, HostComputeEndpoints: names.sort() };
  });
  return [made, loadBalancers].flatMap((objects) => objects.map((one) => JSON.stringify(one)).sort());
}

/** A test cluster and the rig that syncs it. */
export type TestModel = TestCluster & { readonly rig: KernelspaceRig };

export function newModel(options?: RigOptions): TestModel {
  const cluster = new TestCluster();
  return Object.assign(cluster, { rig: new KernelspaceRig(cluster.driver, options) });
}
