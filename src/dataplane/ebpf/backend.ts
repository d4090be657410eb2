/**
 * The eBPF mode for one family: the backend of the packet path, and in front of it programs that decide at the socket. The packet
 * path is whole by itself, so what goes wrong here costs speed and no service.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import type { BalancerCapacity } from "../../kernel/bpf/socket-balancer/maps.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { AddressWatch } from "../../kernel/route/address-watch.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { UdpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import { type IpFamily, isLoopback } from "../../net/ip.ts";
import type { Backend, LostRules, SyncFailure, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import { lesserWays } from "./lesser-ways.ts";
import type { EbpfMetrics } from "./metrics.ts";
import { SocketMaps } from "./socket-maps.ts";
import type { SocketPins } from "./socket-pins.ts";
import { type SocketProgramOptions, SocketPrograms, type socketPrograms } from "./socket-programs.ts";
import { StaleConnections } from "./stale-connections.ts";

export interface EbpfBackendOptions {
  /** Leads what no program decides. */
  readonly packetPath: Backend;
  readonly bpf: Bpf;
  /** The folder of the cgroup that holds all processes of the node; undefined: nothing is decided at the socket. */
  readonly cgroup: string | undefined;
  /** Why there is none. */
  readonly whyNoCgroup?: string | undefined;
  /** Where maps and links outlive this process; undefined: they end with it. */
  readonly pins?: SocketPins | undefined;
  readonly nodeName: string;
  /** See {@link SocketPlanFacts}. */
  readonly detectsPods: boolean;
  readonly nodePortAddresses: NodePortAddresses;
  /** What the programs are told. May throw: then nothing is decided at the socket. */
  readonly programs: () => Omit<SocketProgramOptions, "connectedUdp">;
  /** Tells connected UDP sockets that their endpoint is gone. */
  readonly disconnector: UdpDisconnector;
  readonly localAddresses: LocalAddresses;
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly metrics: EbpfMetrics;
  readonly log: Logger;
  /** Makes the programs. @default all */
  readonly assemble?: typeof socketPrograms;
  /** The least room that maps get. @default for a small cluster */
  readonly leastRoom?: BalancerCapacity;
  /** How often it is looked for what nothing tells of. @default 10,000 */
  readonly lookEveryMs?: number;
  /** Monotonic. @default performance.now */
  readonly nowMs?: () => number;
  /** @default every 10 ms */
  readonly yielder?: Yielder;
}

const LOOK_EVERY_MS = 10_000;

/** Logged once for each reason. */
export const NOT_KEPT = "Nothing is decided at the socket while this process is away";

/** Logged when names of an earlier process cannot be taken away. */
export const STUCK = "What decides at the socket cannot be removed, and may lead to endpoints that are gone";

/** The socket programs at work. */
interface Sockets {
  readonly maps: SocketMaps;
  readonly programs: SocketPrograms;
  readonly stale: StaleConnections;
}

/** What this mode does beside the packet path, as status and page name it where it cannot be done. */
export const AT_SOCKET = "connections decided at the socket";

export class EbpfBackend implements Backend {
  readonly mode = "ebpf";
  readonly family: IpFamily;
  readonly usesServiceCIDRs: boolean;
  readonly #options: EbpfBackendOptions;
  readonly #yielder: Yielder;
  readonly #nowMs: () => number;
  /** Undefined before the first sync, and where the kernel does not let us. */
  #sockets: Sockets | undefined;
  #areAddressesKnown = false;
  /** That is why nothing is decided at the socket. */
  #isCgroupMissing = false;
  /** Programs may have lost their cgroup. To ask is a call for each of them: that is for full syncs, and for looks now and then. */
  #mayBeOrphaned = false;
  /** What was logged last of why nothing is decided at the socket, and of why nothing is kept. */
  #complaint: string | undefined;
  #pinComplaint: string | undefined;
  #refusals = "";
  /** What was logged last of why connected UDP is not led everywhere. */
  #udpComplaint = "";

  readonly #waits = new KernelWaits();

  constructor(given: EbpfBackendOptions) {
    const bpf = this.#waits.timed(given.bpf, ["createMap", "loadProgram", "attach", "attached"]);
    const options = { ...given, bpf };
    this.#options = options;
    const { packetPath } = options;
    this.family = packetPath.family;
    this.usesServiceCIDRs = packetPath.usesServiceCIDRs ?? false;
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#yielder = options.yielder ?? new SliceYielder();
  }

  get restMs(): number {
    return this.#options.packetPath.restMs ?? 0;
  }

  /** Whether connections are decided at the socket now. */
  get isAttached(): boolean {
    const { programs } = this.#sockets ?? {};
    return programs?.isAttached === true && !programs.isOrphaned;
  }

  /** What the maps hold, for tests. */
  get sockets(): readonly string[] {
    return this.#sockets?.maps.state() ?? [];
  }

  /** Where connections are decided, or why not there, for `status`. */
  get remarks(): readonly string[] {
    const { degraded, isAttached } = this;
    const lesser = degraded.map(({ subject, reason }) => `${subject}: ${reason}`);
    if (this.#sockets === undefined || !isAttached) {
      return lesser.length > 0 ? lesser : ["nothing is decided at the socket: not synced yet"];
    }
    const { size, connections } = this.#sockets.maps;
    const where = `decided at the socket in ${this.#options.cgroup}`;
    return [`${where}; ${size} service ports, ${connections.count} connected UDP sockets`, ...lesser];
  }

  get degraded(): readonly SyncFailure[] {
    const { cgroup, whyNoCgroup, pins, packetPath } = this.#options;
    const { maps } = this.#sockets ?? {};
    const own = lesserWays({
      isAttached: this.isAttached,
      cgroup,
      isCgroupGone: this.#isCgroupMissing || this.#sockets?.programs.isOrphaned === true,
      complaint:
        this.#complaint ?? (cgroup === undefined ? (whyNoCgroup ?? "there is no cgroup to attach to") : undefined),
      udpComplaint: this.#udpComplaint,
      refusals: [...(maps?.refused.values() ?? [])],
      pinProblem: pins?.problem,
    });
    return [...own, ...(packetPath.degraded ?? [])];
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#waits.begin();
    // The maps first: they take microseconds, the packet path milliseconds. Each path is right by itself.
    try {
      await this.#syncSockets(input, signal);
    } catch (error) {
      signal.throwIfAborted();
      await this.#giveUp(error);
    }
    const { packetPath, metrics } = this.#options;
    metrics.attached.set(this.#sockets?.programs.isAttached === true ? 1 : 0);
    metrics.passedPorts.set(this.#sockets?.maps.refused.size ?? 0);
    const { ms } = this.#waits;
    const { written, ...outcome } = await packetPath.sync(input, signal);
    await this.#disconnectStale(input.isFullSync);
    return written === undefined
      ? outcome
      : { ...outcome, written: { ...written, kernelMs: ms + (written.kernelMs ?? 0) } };
  }

  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { packetPath, addressWatch } = this.#options;
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    const onAddress = (): void => {
      this.#areAddressesKnown = false;
      requestSync();
    };
    try {
      await Promise.all([
        addressWatch.watch(onAddress, ended),
        packetPath.monitor?.(onLost, ended, requestSync),
        this.#watchSockets(onLost, ended, requestSync),
      ]);
    } finally {
      // When one of them fails, both are started again.
      stop.abort();
    }
  }

  async close(): Promise<void> {
    // What was kept goes on, and the next process tells connected UDP when its endpoint goes.
    if (this.#sockets?.programs.release() === true) this.#forget();
    else await this.#end();
    await this.#options.packetPath.close?.();
  }

  /** Nothing tells when a cgroup goes or comes, or when a name is taken away: both are looked at now and then. */
  async #watchSockets(onLost: () => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { cgroup, bpf, lookEveryMs = LOOK_EVERY_MS } = this.#options;
    while (cgroup !== undefined && !signal.aborted) {
      await sleep(lookEveryMs, undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted) return;
      const { programs } = this.#sockets ?? {};
      this.#mayBeOrphaned = programs?.isOrphaned === true;
      if (this.#mayBeOrphaned) requestSync();
      else if (programs?.isAttached === true) this.#keep(programs);
      else if (this.#isCgroupMissing && isThere(bpf, cgroup)) onLost();
    }
  }

  #keep(programs: SocketPrograms): void {
    programs.keep();
    this.#tellPinProblem();
  }

  async #syncSockets(input: SyncInput, signal: AbortSignal): Promise<void> {
    const { cgroup } = this.#options;
    if (cgroup === undefined) return;
    const isNew = this.#sockets === undefined;
    // Where they could not work, they are tried again with each full sync.
    if (isNew && !input.isFullSync) return;
    const sockets = this.#sockets ?? this.#open(input, await this.#askReach());
    this.#sockets = sockets;
    const { maps, programs } = sockets;
    const { services, endpoints, zone } = input;
    const { nodeName, detectsPods } = this.#options;
    const facts = { nodeName, detectsPods, zone };
    const isFull = input.isFullSync || isNew || maps.isUnsettled;
    const concerned = await this.#readAddresses(maps, signal);
    const wanted: Iterable<string> = isFull ? services.keys() : [...input.changedPorts, ...concerned];
    const owned: Iterable<string> = isFull ? maps.keys : input.changedPorts;
    for (const key of owned) maps.release(key, services.get(key));
    for (const key of [...maps.refused.keys(), ...wanted]) {
      const port = services.get(key);
      if (port !== undefined) maps.set(key, port, endpoints.get(key) ?? [], facts);
      if (this.#yielder.isDue()) await this.#yielder.turn(signal);
    }
    maps.settle();
    if ((this.#mayBeOrphaned || input.isFullSync) && programs.isOrphaned) {
      this.#options.log.error("The cgroup is gone, and with it what decided at the socket", undefined, { cgroup });
      programs.close();
    }
    if (!programs.isAttached) this.#attach(sockets, cgroup);
    else if (input.isFullSync) programs.keep();
    this.#tellPinProblem();
    this.#tellRefusals(maps.refused);
  }

  #open({ services, endpointCount }: SyncInput, connectedUdp: SocketProgramOptions["connectedUdp"]): Sockets {
    const { bpf, pins, cgroup, leastRoom: least, assemble, disconnector, metrics, log } = this.#options;
    // Before maps are made for nothing.
    if (cgroup !== undefined) bpf.cgroupId(cgroup);
    const options = { ...this.#options.programs(), connectedUdp };
    const programs = new SocketPrograms(bpf, this.family, options, pins, assemble);
    const maps = new SocketMaps(
      { bpf, family: this.family, onMoved: (open) => programs.load(open), nowMs: this.#nowMs, least },
      { services: services.size, endpoints: endpointCount },
      pins?.findMaps(),
    );
    try {
      programs.load(maps.open);
    } catch (error) {
      maps.close();
      throw error;
    }
    const onDisconnected = (count: number): void => metrics.disconnected.inc(count);
    return { maps, programs, stale: new StaleConnections({ disconnector, onDisconnected, log }) };
  }

  /** Which connected UDP sockets could be told when their endpoint goes; what keeps others from it is said once. */
  async #askReach(): Promise<SocketProgramOptions["connectedUdp"]> {
    const reach = await this.#options.disconnector.reach();
    const why = reach.of === "all" ? "" : reach.why;
    if (why === this.#udpComplaint) return reach.of;
    this.#udpComplaint = why;
    if (reach.of === "all") return reach.of;
    const whose = reach.of === "host" ? "of pods " : "";
    this.#options.log.warn(`Connected UDP ${whose}takes the rules: ${why}`, {
      cannot: `${AT_SOCKET} for connected UDP ${whose}`.trimEnd(),
      why,
    });
    return reach.of;
  }

  /** After both paths: a socket that connects again meets an endpoint on either. */
  async #disconnectStale(isFullSync: boolean): Promise<void> {
    if (this.#sockets === undefined) return;
    const { maps, stale } = this.#sockets;
    if (!maps.takeLostUdp() && !isFullSync) return;
    try {
      await stale.disconnect(maps.connections);
    } catch (error) {
      this.#options.log.error("Looking for UDP sockets whose endpoint is gone failed", error);
    }
  }

  #attach({ maps, programs }: Sockets, cgroup: string): void {
    const { log } = this.#options;
    programs.load(maps.open);
    programs.attach(cgroup);
    this.#complaint = undefined;
    this.#isCgroupMissing = this.#mayBeOrphaned = false;
    log.info("Connections to services are decided at the socket", { can: AT_SOCKET, cgroup });
  }

  async #readAddresses(maps: SocketMaps, signal: AbortSignal): Promise<readonly string[]> {
    if (this.#areAddressesKnown) return [];
    this.#areAddressesKnown = true;
    try {
      const { localAddresses, nodePortAddresses: wanted } = this.#options;
      const addresses = await localAddresses(this.family, signal);
      const answering = nodePortIPs(wanted, addresses);
      const nodeAddresses = answering.kind === "all" ? addresses : answering.ips;
      maps.setNodeAddresses(new Set(nodeAddresses.filter((address) => !isLoopback(address))));
      return maps.setHostAddresses(new Set(addresses));
    } catch (error) {
      this.#areAddressesKnown = false;
      throw error;
    }
  }

  /** The packet path leads everything until it works again. What was kept for the next start would lead to what is old. */
  async #giveUp(error: unknown): Promise<void> {
    await this.#end();
    const { bpf, cgroup } = this.#options;
    this.#isCgroupMissing = cgroup !== undefined && !isThere(bpf, cgroup);
    const reason = messageOf(error);
    if (reason === this.#complaint) return;
    this.#complaint = reason;
    this.#options.log.error("Nothing is decided at the socket; the nftables rules lead all packets", error, {
      cannot: AT_SOCKET,
    });
  }

  #tellRefusals(refused: ReadonlyMap<string, string>): void {
    const names = [...refused.keys()].sort().join(", ");
    if (names === this.#refusals) return;
    this.#refusals = names;
    const what = `${AT_SOCKET} for some service ports`;
    if (names === "") {
      this.#options.log.info("All service ports are decided at the socket again", { can: what });
      return;
    }
    const [reason = ""] = refused.values();
    this.#options.log.error("Service ports that are not decided at the socket", new Error(reason), {
      names,
      cannot: what,
    });
  }

  #tellPinProblem(): void {
    const problem = this.#options.pins?.problem;
    const reason = problem === undefined ? undefined : messageOf(problem);
    if (reason === this.#pinComplaint) return;
    this.#pinComplaint = reason;
    if (reason !== undefined) this.#options.log.error(NOT_KEPT, problem);
  }

  /** What is in the kernel stays as it is. */
  #forget(): void {
    this.#sockets?.stale.close();
    this.#sockets?.maps.close();
    this.#sockets = undefined;
    this.#areAddressesKnown = false;
  }

  /** UDP sockets that were led would not be told any more when their endpoint goes: they connect again, by the rules. */
  async #end(): Promise<void> {
    const { pins, disconnector, log } = this.#options;
    const sockets = this.#sockets;
    this.#sockets = undefined;
    this.#areAddressesKnown = false;
    if (sockets !== undefined) {
      const { maps, programs, stale } = sockets;
      programs.close();
      await stale.disconnectAll(maps.connections);
      maps.close();
    }
    try {
      if (sockets !== undefined) pins?.end();
      else await pins?.endWithSockets(disconnector);
    } catch (error) {
      log.error(STUCK, error);
    }
  }
}

function isThere(bpf: Bpf, cgroup: string): boolean {
  try {
    bpf.cgroupId(cgroup);
    return true;
  } catch {
    return false;
  }
}
