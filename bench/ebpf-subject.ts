/** What is measured of the eBPF mode: the model and the backend of IPv4 as the daemon has them, in this process's network namespace. */

import { execFileSync } from "node:child_process";
import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../src/async/clock.ts";
import { projectEndpointSlice } from "../src/cluster/projection/endpoint-slice.ts";
import { EbpfBackend } from "../src/dataplane/ebpf/backend.ts";
import type { EbpfMetrics } from "../src/dataplane/ebpf/metrics.ts";
import { SocketMaps } from "../src/dataplane/ebpf/socket-maps.ts";
import { SocketPath } from "../src/dataplane/ebpf/socket-path.ts";
import type { Bpf, BpfLink, BpfProgram } from "../src/kernel/bpf/bpf.ts";
import type { Hook } from "../src/kernel/bpf/hooks.ts";
import { kernelBpf } from "../src/kernel/bpf/kernel-bpf.ts";
import { ownNetnsCookie } from "../src/kernel/netns-cookie.ts";
import { localAddresses } from "../src/kernel/route/addresses.ts";
import { udpDisconnector } from "../src/kernel/sock-diag/disconnect-udp.ts";
import type { Logger } from "../src/logging/logger.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { nodePortAddresses } from "../src/model/node-port-addresses.ts";
import type { Backend, SyncInput } from "../src/sync/backend.ts";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import { apiSlice } from "./api-objects.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { benchConfig, benchState } from "./subject.ts";

const DEAD_PORT = 8081;

const NOTHING: EbpfMetrics = {
  attached: { set: () => {} },
  passedPorts: { set: () => {} },
  disconnected: { inc: () => {} },
};

/** What is wrong ends the bench: figures of a mode that does not work mean nothing. */
const log: Logger = {
  ...silentLogger,
  error: (message, error) => {
    throw new Error(`${message}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  },
};

/** What the backend calls for each service port that has changed. */
const { set } = SocketMaps.prototype;
SocketMaps.prototype.set = function timedSet(...args): void {
  const startMs = performance.now();
  set.apply(this, args);
  EbpfSubject.mapWorkMs += performance.now() - startMs;
};

/** A cgroup without processes, which goes with this process. `ip netns exec` gives it a mount namespace of its own, without cgroups. */
export function ownCgroup(): string {
  if (cgroupMount() === undefined) execFileSync("mount", ["-t", "cgroup2", "none", "/sys/fs/cgroup"]);
  const cgroup = join(cgroupMount() ?? "", `kpts-bench-${process.pid}`);
  mkdirSync(cgroup);
  process.once("exit", () => rmdirSync(cgroup));
  return cgroup;
}

export class EbpfSubject {
  readonly state = benchState();
  readonly #endpointsEach: number;
  readonly backend: EbpfBackend;
  readonly #generations = new Map<number, number>();
  /** What replaces each link's program in turns. */
  readonly #twins = new Map<Pick<BpfLink, "replace">, readonly [BpfProgram, BpfProgram]>();
  #updates = 0;
  /** Spent on maps of all subjects: finding what differs of a service port, and writing it. */
  static mapWorkMs = 0;
  /** When the last sync came to its packet path: the maps have everything by then. */
  mapsDoneMs = 0;

  constructor(endpointsEach: number, packetPath: Backend, cgroup: string) {
    this.#endpointsEach = endpointsEach;
    const noted: Backend = {
      family: "IPv4",
      mode: packetPath.mode,
      sync: (input, signal) => {
        this.mapsDoneMs = performance.now();
        return packetPath.sync(input, signal);
      },
    };
    const sockets = new SocketPath({
      family: "IPv4",
      bpf: this.#withTwins(kernelBpf()),
      cgroup,
      nodeName: benchConfig().nodeName,
      validForMs: 600_000,
      nodePortAddresses: nodePortAddresses("IPv4", []),
      programs: () => ({ hostCookie: ownNetnsCookie(), isForHostOnly: false }),
      disconnector: udpDisconnector(),
      localAddresses,
      addressWatch: { watch: () => Promise.resolve() },
      clock: systemClock,
      monotonicNs: process.hrtime.bigint,
      metrics: NOTHING,
      log,
    });
    this.backend = new EbpfBackend(noted, sockets);
  }

  /** Puts services and their endpoints into the model. */
  load(count: number): void {
    for (let index = 0; index < count; index += 1) {
      this.state.onService({ kind: "add", object: benchService(index) });
      this.state.onEndpointSlice({ kind: "add", object: benchSlice(index, this.#endpointsEach) });
    }
    this.state.applyChanges();
  }

  /** @throws Error when connections are not decided at the socket after it. */
  async fullSync(): Promise<void> {
    await this.#sync(true, new Set());
    if (!this.backend.isAttached) throw new Error("nothing is decided at the socket");
  }

  /** Replaces an endpoint of a service, in the model only. */
  replaceEndpoint(index: number): void {
    const generation = this.#generations.get(index) ?? 0;
    this.#generations.set(index, generation + 1);
    this.state.onEndpointSlice({
      kind: "update",
      old: benchSlice(index, this.#endpointsEach, generation),
      object: benchSlice(index, this.#endpointsEach, generation + 1),
    });
  }

  /** Adds a service with its endpoints, or removes it, in the model only. */
  setService(index: number, kind: "add" | "delete"): void {
    const slice = benchSlice(index, this.#endpointsEach, this.#generations.get(index) ?? 0);
    this.state.onService({ kind, object: benchService(index) });
    this.state.onEndpointSlice({ kind, object: slice });
  }

  /** The line of a watch that replaces an endpoint of a service. @returns what happens when it comes. */
  watchLine(index: number): () => void {
    const generation = this.#generations.get(index) ?? 0;
    this.#generations.set(index, generation + 1);
    const object = apiSlice(index, this.#endpointsEach, generation + 1, 0);
    const line = JSON.stringify({ type: "MODIFIED", object });
    const old = benchSlice(index, this.#endpointsEach, generation);
    return () => {
      const projected = projectEndpointSlice(JSON.parse(line).object);
      if (!projected.ok) throw new Error("the line is no slice");
      this.state.onEndpointSlice({ kind: "update", old, object: projected.record });
    };
  }

  /**
   * Leaves a service one endpoint, at a port where nothing listens. @returns what happens when the line of a watch comes that puts
   * another endpoint in its place, at a port where the bench listens.
   */
  replaceDeadEndpoint(index: number): () => void {
    const current = benchSlice(index, this.#endpointsEach, this.#generations.get(index) ?? 0);
    const dead = { ...benchSlice(index, 1), ports: current.ports.map((port) => ({ ...port, port: DEAD_PORT })) };
    this.state.onEndpointSlice({ kind: "update", old: current, object: dead });
    const line = JSON.stringify({ type: "MODIFIED", object: apiSlice(index, 1, 1, 0) });
    return () => {
      const projected = projectEndpointSlice(JSON.parse(line).object);
      if (!projected.ok) throw new Error("the line is no slice");
      this.state.onEndpointSlice({ kind: "update", old: dead, object: projected.record });
    };
  }

  /** What the maps say of a service, read back. */
  leads(index: number): string | undefined {
    const frontend = `TCP ${benchService(index).clusterIP} 80 `;
    return this.backend.sockets.find((line) => line.startsWith(frontend));
  }

  async syncChanges(): Promise<void> {
    const { changedPorts } = this.state.applyChanges();
    await this.#sync(false, changedPorts);
  }

  /** Replaces the program of each hook by one with the same instructions: LINK_UPDATE. @returns how many have been so far. */
  updateLinks(): number {
    for (const [link, [program, twin]] of this.#twins) {
      link.replace(twin);
      // The backend finds its own again.
      link.replace(program);
      this.#updates += 2;
    }
    return this.#updates;
  }

  async close(): Promise<void> {
    await this.backend.close();
  }

  #withTwins(bpf: Bpf): Bpf {
    const twins = new Map<BpfProgram, BpfProgram>();
    return {
      ...bpf,
      loadProgram: (program, place, maps) => {
        const [one, other] = [0, 1].map(() => bpf.loadProgram(program, place, maps));
        if (one === undefined || other === undefined) throw new Error("two programs are loaded");
        twins.set(one, other);
        return one;
      },
      attach: (program: BpfProgram, hook: Hook, cgroup: string) => {
        const link = bpf.attach(program, hook, cgroup);
        const replace = link.replace.bind(link);
        const known = { replace };
        const note = (of: BpfProgram): void => {
          const twin = twins.get(of);
          if (twin !== undefined) this.#twins.set(known, [of, twin]);
        };
        note(program);
        // Programs over longer maps have other twins.
        link.replace = (other, ...rest) => {
          replace(other, ...rest);
          note(other);
        };
        return link;
      },
    };
  }

  async #sync(isFullSync: boolean, changedPorts: ReadonlySet<string>): Promise<void> {
    const { services, endpoints, endpointCount } = this.state;
    const input: SyncInput = {
      ...{ isFullSync, services, endpoints, endpointCount, changedPorts },
      zone: undefined,
      serviceCIDRs: ["10.96.0.0/12"],
    };
    const { failures } = await this.backend.sync(input, new AbortController().signal);
    const [failure] = failures;
    if (failure !== undefined) throw new Error(`${failure.subject} was refused: ${failure.reason}`);
  }
}
