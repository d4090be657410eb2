/**
 * What is measured: the model and the iptables backend of one family as the daemon has them, over tools whose time is
 * taken. The proxier around them only decides when; it is left out.
 */
import { IptablesBackend } from "../src/dataplane/iptables/backend.ts";
import type { PlanConfig } from "../src/dataplane/iptables/plan-options.ts";
import { createIptables } from "../src/kernel/iptables/exec-iptables.ts";
import type { Iptables } from "../src/kernel/iptables/iptables.ts";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import { silentLogger } from "../src/logging/logger.ts";
import type { Endpoint } from "../src/model/endpoint.ts";
import { detectorFor } from "../src/model/local-traffic-detector.ts";
import { ProxyState } from "../src/model/proxy-state.ts";
import { parseIpAddress } from "../src/net/ip.ts";
import type { SyncInput } from "../src/sync/backend.ts";
import { benchService, benchSlice } from "./cluster.ts";
import type { BackEnd, SmallChange, SyncFigures } from "./figures.ts";
import type { MeasuredExec, ToolRun } from "./measured-exec.ts";
import { ownCpuMs } from "./memory.ts";

const NODE_NAME = "bench-node";

/** The configuration that all measurements use. */
export function benchConfig(): PlanConfig {
  const nodeIP = parseIpAddress("192.168.0.2");
  if (nodeIP === undefined) throw new TypeError("the node's address is none");
  const { detector } = detectorFor("IPv4", {
    mode: "ClusterCIDR",
    clusterCIDRs: ["10.128.0.0/9"],
    podCIDRs: [],
    bridgeInterface: "",
    interfaceNamePrefix: "",
  });
  return {
    family: "IPv4",
    nodeName: NODE_NAME,
    nodeIP,
    masqueradeMark: 1 << 14,
    masqueradeAll: false,
    detector,
    localhostNodePorts: false,
    conntrackLiberal: false,
  };
}

/** An empty model of the bench's cluster. */
export function benchState(): ProxyState {
  return new ProxyState({
    family: "IPv4",
    nodeName: NODE_NAME,
    allowExternalIPs: true,
    now: () => 0,
    log: silentLogger,
  });
}

export class Subject {
  readonly #exec: MeasuredExec;
  readonly #iptables: Iptables;
  readonly #endpointsEach: number;
  readonly state = benchState();
  #backend: IptablesBackend;
  /** By service number; absent means 0, the endpoints of the start. */
  readonly #generations = new Map<number, number>();

  private constructor(exec: MeasuredExec, iptables: Iptables, endpointsEach: number) {
    this.#exec = exec;
    this.#iptables = iptables;
    this.#endpointsEach = endpointsEach;
    this.#backend = benchIptablesBackend(this.#iptables);
  }

  static async create(backEnd: BackEnd, exec: MeasuredExec, endpointsEach: number): Promise<Subject> {
    const iptables = await createIptables({
      family: "IPv4",
      exec: exec.exec,
      log: silentLogger,
      binaries: binariesOf("IPv4", backEnd),
      nftReader: async () => {
        const reader = await import("../src/kernel/iptables/nft-chains.ts");
        return {
          ...reader,
          nftChainUses: async (...args) =>
            new Map(await exec.instead(async () => [...(await reader.nftChainUses(...args))])),
        };
      },
    });
    return new Subject(exec, iptables, endpointsEach);
  }

  /** Puts the services with these numbers, and their endpoints, into the model. */
  load(count: number): void {
    for (let index = 0; index < count; index += 1) {
      this.state.onService({ kind: "add", object: benchService(index) });
      this.state.onEndpointSlice({ kind: "add", object: benchSlice(index, this.#endpointsEach) });
    }
    this.state.applyChanges();
  }

  /** A sync of everything, by a backend that knows nothing yet: the first one, or the first after a restart. */
  async fullSync(): Promise<SyncFigures> {
    this.#backend = benchIptablesBackend(this.#iptables);
    return await this.#sync(true, new Set(), performance.now(), 0);
  }

  /** One change of one service and its sync. */
  async change(kind: SmallChange, index: number): Promise<SyncFigures> {
    const startMs = performance.now();
    this.#apply(kind, index);
    const { changedPorts } = this.state.applyChanges();
    const syncMs = performance.now();
    return await this.#sync(false, changedPorts, syncMs, syncMs - startMs);
  }

  #apply(kind: SmallChange, index: number): void {
    const each = this.#endpointsEach;
    const generation = this.#generations.get(index) ?? 0;
    const slice = benchSlice(index, each, generation);
    switch (kind) {
      case "endpoint replaced":
        this.#generations.set(index, generation + 1);
        this.state.onEndpointSlice({ kind: "update", old: slice, object: benchSlice(index, each, generation + 1) });
        return;
      case "service added":
        this.state.onService({ kind: "add", object: benchService(index) });
        this.state.onEndpointSlice({ kind: "add", object: slice });
        return;
      case "service removed":
        this.state.onService({ kind: "delete", object: benchService(index) });
        this.state.onEndpointSlice({ kind: "delete", object: slice });
        return;
    }
  }

  async #sync(
    isFullSync: boolean,
    changedPorts: ReadonlySet<string>,
    startMs: number,
    modelMs: number,
  ): Promise<SyncFigures> {
    this.#exec.takeRuns();
    const startCpuMs = ownCpuMs();
    const { services, endpointCount } = this.state;
    const endpoints = new WatchedMap(this.state.endpoints);
    const input: SyncInput = {
      isFullSync,
      services,
      endpoints,
      endpointCount,
      changedPorts,
      zone: undefined,
      serviceCIDRs: [],
    };
    const { failures } = await this.#backend.sync(input, new AbortController().signal);
    const endMs = performance.now();
    const cpuMs = ownCpuMs() - startCpuMs;
    const [failure] = failures;
    if (failure !== undefined) throw new Error(`${failure.subject} was refused: ${failure.reason}`);
    return splitSync({ startMs, endMs, modelMs, plannedMs: endpoints.lastGetMs, cpuMs, runs: this.#exec.takeRuns() });
  }
}

/** A backend as the daemon has it. */
export function benchIptablesBackend(iptables: Iptables): IptablesBackend {
  return new IptablesBackend({
    config: benchConfig(),
    iptables,
    counters: undefined,
    nodePortIPs: () => Promise.resolve({ kind: "all" }),
    metrics: { restoreFailures: { inc() {} }, partialRestoreFailures: { inc() {} }, setTotal() {}, setLast() {} },
    monitor: () => Promise.resolve(),
    log: silentLogger,
  });
}

interface SyncTimes {
  readonly startMs: number;
  readonly endMs: number;
  readonly modelMs: number;
  /** When the backend last asked for endpoints. */
  readonly plannedMs: number | undefined;
  readonly cpuMs: number;
  readonly runs: readonly ToolRun[];
}

function splitSync({ startMs, endMs, modelMs, plannedMs, cpuMs, runs }: SyncTimes): SyncFigures {
  const restores = runs.filter(({ isRestore }) => isRestore);
  const others = runs.filter(({ isRestore }) => !isRestore);
  const toolsCpu = (some: readonly ToolRun[]) => some.reduce((sum, run) => sum + run.toolCpuMs, 0);
  const lived = (some: readonly ToolRun[]) => some.reduce((sum, run) => sum + run.endMs - run.startMs, 0);
  // What ran before the last service was planned prepared for planning: jumps and lists of chains.
  const before = runs.filter((run) => plannedMs === undefined || run.endMs < plannedMs);
  const planStartMs = plannedMs === undefined ? startMs : Math.max(startMs, ...before.map((run) => run.endMs));
  const planEndMs = plannedMs ?? startMs;
  const restoreStartMs = restores.find((run) => run.startMs >= planEndMs)?.startMs ?? planEndMs;
  const wallMs = endMs - startMs;
  const restoreMs = lived(restores);
  const writeCpuMs = restores.reduce((sum, run) => sum + run.ownCpuMs, 0);
  return {
    wallMs,
    modelMs,
    otherToolsMs: lived(others),
    planMs: planEndMs - planStartMs,
    payloadMs: restoreStartMs - planEndMs,
    restoreMs,
    writeCpuMs,
    ownMs: modelMs + wallMs - restoreMs + writeCpuMs,
    bytes: restores.reduce((sum, run) => sum + run.bytes, 0),
    ownCpuMs: cpuMs,
    otherToolsCpuMs: toolsCpu(others),
    restoreCpuMs: toolsCpu(restores),
  };
}

/** The live map of endpoints, and the time of the last look-up in it: the end of planning. */
class WatchedMap implements ReadonlyMap<string, readonly Endpoint[]> {
  readonly #map: ReadonlyMap<string, readonly Endpoint[]>;
  lastGetMs: number | undefined;

  constructor(map: ReadonlyMap<string, readonly Endpoint[]>) {
    this.#map = map;
  }
  get size(): number {
    return this.#map.size;
  }
  get(key: string): readonly Endpoint[] | undefined {
    this.lastGetMs = performance.now();
    return this.#map.get(key);
  }
  has(key: string): boolean {
    return this.#map.has(key);
  }
  forEach(
    visit: (value: readonly Endpoint[], key: string, map: ReadonlyMap<string, readonly Endpoint[]>) => void,
  ): void {
    this.#map.forEach(visit);
  }
  entries() {
    return this.#map.entries();
  }
  keys() {
    return this.#map.keys();
  }
  values() {
    return this.#map.values();
  }
  [Symbol.iterator]() {
    return this.#map[Symbol.iterator]();
  }
}
