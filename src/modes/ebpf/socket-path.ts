/**
 * The socket path of one family: maps and programs in front of the packet path, which is complete on its own. So a
 * failure here costs speed, not service: it is logged once, and every full sync retries.
 */
import type { Clock } from "../../async/clock.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { LedConnections, SyncFailure, SyncInput } from "../../contract/backend.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import type { FoundFolder } from "../../kernel/bpf/places.ts";
import { FolderInUse } from "../../kernel/folder-lock.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import type { AddressWatch } from "../../kernel/route/address-watch.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { udpPeers } from "../../kernel/sock-diag/client-sockets.ts";
import type { UdpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import { attempt } from "../../logging/attempt.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import { type IpAddress, type IpFamily, isLoopback } from "../../net/ip.ts";
import { ClosedSockets } from "./closed-sockets.ts";
import { REMEMBERED } from "./config.ts";
import { endLedSockets, readLedSockets } from "./led-sockets.ts";
import type { EbpfMetrics } from "./metrics.ts";
import type { PodNamespaces } from "./pod-namespaces.ts";
import type { BalancerCapacity } from "./socket-balancer/maps.ts";
import type { SocketProgramOptions, socketPrograms } from "./socket-balancer/programs.ts";
import { SocketMaps, type Validity } from "./socket-maps.ts";
import { KNOWN_ADDRESSES, SocketNews, STUCK, UNTOLD } from "./socket-news.ts";
import type { SocketPins } from "./socket-pins.ts";
import { SocketPrograms } from "./socket-programs.ts";
import { StaleConnections } from "./stale-connections.ts";

interface SocketPathOptions {
  readonly family: IpFamily;
  readonly bpf: Bpf;
  /** The folder of the cgroup that contains all processes of the node; without one, the socket path is off. */
  readonly cgroup: FoundFolder;
  /** Where maps and links outlive this process; undefined: they end with it. */
  readonly pins?: SocketPins | undefined;
  readonly nodeName: string;
  readonly nodePortAddresses: NodePortAddresses;
  /** Options of the programs. May throw: then the socket path is off. */
  readonly programs: () => Omit<SocketProgramOptions, "leadsConnectedUdp" | "canSetReturnValue">;
  /** Whose sockets are redirected beside the host's. */
  readonly pods: PodNamespaces;
  /** Tells connected UDP sockets that their endpoint is gone. */
  readonly disconnector: UdpDisconnector;
  readonly udpPeers: typeof udpPeers;
  readonly localAddresses: LocalAddresses;
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly metrics: EbpfMetrics;
  readonly log: Logger;
  /** Builds the programs. @default all */
  readonly assemble?: typeof socketPrograms;
  /** The maps' minimum capacity. @default for a small cluster */
  readonly leastRoom?: BalancerCapacity;
  /** See {@link EbpfConfig}. @default 32768 */
  readonly rememberedSockets?: number;
  /** How long programs stay in force after this process last renewed them. */
  readonly validForMs: number;
  readonly clock: Clock;
  /** CLOCK_MONOTONIC, as programs read it. */
  readonly monotonicNs: () => bigint;
  /** Whose programs these are: of which network namespace, and of which start. */
  readonly identity: () => Pick<Required<Validity>, "owner" | "start">;
}

/** Interval of checks for changes without notifications. */
const LOOK_EVERY_MS = 10_000;
/** Every sixth check reads the map of frontends. */
const LOOKS_FOR_DAMAGE = 6;

/** The running socket programs. */
interface Sockets {
  readonly maps: SocketMaps;
  readonly programs: SocketPrograms;
  readonly stale: StaleConnections;
  readonly closed: ClosedSockets;
}

export class SocketPath {
  readonly #options: SocketPathOptions;
  readonly #cgroup: string | undefined;
  readonly #waits: KernelWaits;
  /** Undefined before the first sync, and while the socket path is off. */
  #sockets: Sockets | undefined;
  /** Until the first sync, an earlier process's pins stay untouched. */
  #hasBegun = false;
  #areAddressesKnown = false;
  /** The obstacle may end without a cluster change: no cgroup, a folder in use, or addresses that cannot be read. */
  #mayEnd = false;
  /** Programs may have lost their cgroup. Asking costs a call per program: only for full syncs and periodic checks. */
  #mayBeOrphaned = false;
  #endpoints: ReadonlyMap<string, readonly Endpoint[]> = new Map();
  readonly #news: SocketNews;

  constructor(options: SocketPathOptions) {
    this.#waits = new KernelWaits(() => options.clock.monotonicMs());
    this.#cgroup = options.cgroup.ok ? options.cgroup.path : undefined;
    const bpf = this.#waits.timed(options.bpf);
    this.#options = { ...options, bpf };
    this.#news = new SocketNews(options.log);
    options.pods.add({
      family: options.family,
      maps: () => this.#sockets?.maps.memory,
      endpoints: () => this.#endpoints,
    });
  }

  /** Whether connections are now decided at the socket. */
  get isAttached(): boolean {
    const { programs } = this.#sockets ?? {};
    return programs?.isAttached === true && !programs.isOrphaned;
  }

  /** The maps' content, for tests. */
  get state(): readonly string[] {
    return this.#sockets?.maps.state() ?? [];
  }

  /** Time spent waiting for the kernel in the last {@link sync}. */
  get kernelMs(): number {
    return this.#waits.ms;
  }

  /** Where connections are decided, in words; undefined while the socket path is off. */
  get where(): string | undefined {
    if (this.#sockets === undefined || !this.isAttached) return undefined;
    const { keys, connections } = this.#sockets.maps;
    const lesser = this.#news.last("refusals") ?? "";
    return `decided at the socket in ${this.#cgroup} ${this.#options.pods.text}; service ports: ${keys.length}, connected UDP sockets: ${connections.count}${lesser && `. ${lesser}`}`;
  }

  /** Connections that programs redirected. */
  readonly led: LedConnections = {
    read: (visit) => readLedSockets(this.#options.family, () => this.#sockets?.maps.memory, visit),
    end: endLedSockets,
  };

  /** What works less well than requested, and why. */
  get degraded(): readonly SyncFailure[] {
    const { cgroup, pins } = this.#options;
    const way = (subject: string, reason: string | undefined): readonly SyncFailure[] =>
      reason === undefined || reason === "" ? [] : [{ subject, reason }];
    if (!this.isAttached) {
      const isGone = cgroup.ok && !this.#isThere(cgroup.path);
      const last = isGone ? `the cgroup ${cgroup.path} is not there` : this.#news.last("all");
      return way("nothing is decided at the socket", cgroup.ok ? last : cgroup.reason);
    }
    const refusals = [...(this.#sockets?.maps.refused.values() ?? [])];
    const problem = pins?.problem;
    return [
      ...way("connected UDP takes the rules", this.#news.last("connected UDP")),
      ...way("pods take the rules", this.#options.pods.problem),
      ...way(`service ports that take the rules: ${refusals.length}`, refusals[0]),
      ...way(KNOWN_ADDRESSES, this.#news.last("addresses")),
      ...way("nothing is decided while this process is away", problem === undefined ? undefined : messageOf(problem)),
    ];
  }

  /** Updates the maps to the input. Throws only the signal's reason. */
  async sync(input: SyncInput, signal: AbortSignal): Promise<void> {
    this.#waits.begin();
    try {
      await this.#sync(input, signal);
    } catch (error) {
      this.#areAddressesKnown = false;
      signal.throwIfAborted();
      await this.#giveUp(error);
    }
    const { metrics } = this.#options;
    metrics.attached.set(this.#sockets?.programs.isAttached === true ? 1 : 0);
    metrics.passedPorts.set(this.#sockets?.maps.refused.size ?? 0);
  }

  /** Call after both paths are updated: a socket that reconnects gets a live endpoint on either. */
  async disconnectStale(isFullSync: boolean): Promise<void> {
    if (this.#sockets === undefined) return;
    const { maps, stale } = this.#sockets;
    if (maps.takeLostUdp() || isFullSync) await stale.disconnect();
  }

  /** Runs until the signal aborts. @throws the address watch's errors. */
  async watch(onLost: () => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const onAddress = (): void => {
      this.#areAddressesKnown = false;
      requestSync();
    };
    // Changes before the watch started were not reported.
    this.#areAddressesKnown = false;
    await Promise.all([
      this.#options.addressWatch.watch(onAddress, signal),
      this.#options.pods.watch(signal),
      this.#watchSockets(onLost, signal, requestSync),
    ]);
  }

  async close(): Promise<void> {
    if (!this.#hasBegun) return;
    // Pins stay in force, and the next process tells connected UDP sockets when their endpoint goes.
    if (this.#sockets?.programs.release() !== true) return this.#end();
    const { maps, stale, closed } = this.#sockets;
    attempt(() => maps.endBeat());
    stale.close();
    closed.close();
    maps.close();
    this.#sockets = undefined;
  }

  /** Nothing reports when a cgroup appears or disappears, or when a pin is removed: check both periodically. */
  async #watchSockets(onLost: () => void, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { clock } = this.#options;
    const cgroup = this.#cgroup;
    // The watch may fail and restart before a check is due.
    if (this.#sockets !== undefined && this.isAttached) this.#renew(this.#sockets.maps);
    for (let looks = 1; cgroup !== undefined && !signal.aborted; looks++) {
      await clock.sleep(LOOK_EVERY_MS, signal);
      if (signal.aborted) return;
      const { programs } = this.#sockets ?? {};
      this.#mayBeOrphaned = programs?.isOrphaned === true;
      if (this.#mayBeOrphaned) requestSync();
      else if (this.#sockets !== undefined && this.isAttached) {
        if (!this.#areAddressesKnown) requestSync();
        this.#renew(this.#sockets.maps);
        this.#sockets.programs.keep();
        this.#news.tellPinProblem(this.#options.pins);
        if (looks % LOOKS_FOR_DAMAGE === 0 && this.#news.tellDamage(this.#sockets.maps.findDamage())) onLost();
        if (this.#news.last("connected UDP") !== "" && (await this.#canDisconnect())) requestSync();
      } else if (await this.#hasObstacleGone(cgroup, signal)) onLost();
    }
  }

  async #hasObstacleGone(cgroup: string, signal: AbortSignal): Promise<boolean> {
    const { family, pins, localAddresses } = this.#options;
    if (!this.#mayEnd || !this.#isThere(cgroup)) return false;
    try {
      pins?.hold();
      await localAddresses(family, signal);
      return true;
    } catch {
      return false;
    }
  }

  async #sync(input: SyncInput, signal: AbortSignal): Promise<void> {
    const cgroup = this.#cgroup;
    if (cgroup === undefined) return;
    // If programs could not be attached, only full syncs retry.
    if (this.#sockets === undefined && !input.isFullSync) return;
    this.#hasBegun = true;
    const { services, endpoints, zone } = input;
    this.#endpoints = endpoints;
    this.#sockets ??= this.#open(input, cgroup, await this.#canDisconnect());
    const { maps, programs } = this.#sockets;
    programs.leadConnectedUdp(this.#news.last("connected UDP") === "");
    const facts = { nodeName: this.#options.nodeName, zone };
    const isFull = input.isFullSync || maps.isUnsettled;
    await this.#readAddresses(maps, signal);
    const wanted: Iterable<string> = isFull ? services.keys() : input.changedPorts;
    const owned: Iterable<string> = isFull ? [...maps.keys, ...maps.refused.keys()] : input.changedPorts;
    const tellWrites = this.#news.noteWrites(maps, () =>
      isFull ? [...maps.keys, ...services.keys()] : input.changedPorts,
    );
    for (const key of owned) maps.release(key, services.get(key));
    for (const key of [...maps.refused.keys(), ...wanted]) {
      const port = services.get(key);
      if (port !== undefined) maps.set(key, port, endpoints.get(key) ?? [], facts);
      if (isTurnDue()) await giveTurn(signal);
    }
    maps.settle();
    tellWrites();
    if (isFull) this.#renew(maps);
    if ((this.#mayBeOrphaned || input.isFullSync) && programs.isOrphaned) {
      this.#news.tellOrphaned(programs.wereDetached(cgroup), cgroup);
      programs.close();
      programs.load(maps.open);
    }
    if (!programs.isAttached) await this.#attach(this.#sockets, cgroup);
    else if (input.isFullSync) programs.keep();
    this.#news.tellPinProblem(this.#options.pins);
    this.#news.tellRefusals(maps.refused);
  }

  #renew(maps: SocketMaps): void {
    const { validForMs, monotonicNs, identity } = this.#options;
    const beat = monotonicNs();
    maps.renew({ until: beat + BigInt(Math.round(validForMs * 1e6)), beat, ...identity() });
  }

  #open({ services, endpointCount }: SyncInput, cgroup: string, leadsConnectedUdp: boolean): Sockets {
    const { family, bpf, pins, clock, leastRoom: least, disconnector, metrics, log, pods } = this.#options;
    const { rememberedSockets: remembered = REMEMBERED, assemble, udpPeers: peers, identity } = this.#options;
    // Fail before maps are created for nothing.
    bpf.cgroupId(cgroup);
    pins?.hold();
    const canSetReturnValue = bpf.canSetReturnValue("connect4");
    this.#news.tellWhoRefuses(canSetReturnValue);
    const options = { ...this.#options.programs(), leadsConnectedUdp, canSetReturnValue };
    const counts = options.counted === undefined || options.counted === "None" ? 1 : remembered;
    const programs = new SocketPrograms(bpf, family, options, pins, assemble);
    const nowMs = (): number => clock.monotonicMs();
    const maps = new SocketMaps(
      { bpf, family, onMoved: (open) => programs.load(open), nowMs, least, remembered, counts },
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
    const told = { connections: maps.connections, disconnector, onDisconnected, onUnreachable: pods.request };
    const stale = new StaleConnections({ ...told, log, clock });
    const closed = new ClosedSockets({ family, maps: () => maps.memory, peers, identity, stale, log, clock });
    return { maps, programs, stale, closed };
  }

  /** Whether connected UDP sockets can be told that their endpoint is gone. */
  async #canDisconnect(): Promise<boolean> {
    this.#news.tellLimit("connected UDP", (await this.#options.disconnector.obstacle()) ?? "");
    return this.#news.last("connected UDP") === "";
  }

  async #attach({ programs, closed }: Sockets, cgroup: string): Promise<void> {
    const { pins, disconnector, log, pods } = this.#options;
    await pods.look();
    const former = pins?.formerSockets() ?? [];
    if (programs.attach(cgroup)) void closed.look();
    if (former.length > 0) void disconnector.disconnect(former).catch((error: unknown) => log.error(UNTOLD, error));
    this.#mayEnd = false;
    this.#mayBeOrphaned = false;
    this.#news.tellOn(cgroup);
  }

  /** If they cannot be read, the last known ones stay in use. @throws if there are none. */
  async #readAddresses(maps: SocketMaps, signal: AbortSignal): Promise<void> {
    if (this.#areAddressesKnown) return;
    const { family, localAddresses, nodePortAddresses, log } = this.#options;
    // From now on, the watch reports changes.
    this.#areAddressesKnown = true;
    let addresses: readonly IpAddress[];
    try {
      addresses = await localAddresses(family, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      const isNews = this.#news.isNews("addresses", messageOf(error));
      if (!this.isAttached) throw error;
      this.#areAddressesKnown = false;
      if (isNews) log.error(KNOWN_ADDRESSES, error);
      return;
    }
    this.#news.forget("addresses");
    const answering = nodePortIPs(nodePortAddresses, addresses);
    const nodeAddresses = answering.kind === "all" ? addresses : answering.ips;
    // In this order, no node port applies to a new address that a Service has.
    maps.setHostAddresses(new Set(addresses));
    maps.setNodeAddresses(new Set(nodeAddresses.filter((address) => !isLoopback(address))));
  }

  /** The packet path takes over until the socket path works again. Removes pins, because they would become outdated. */
  async #giveUp(error: unknown): Promise<void> {
    await this.#end();
    const cgroup = this.#cgroup;
    const isAway = cgroup !== undefined && !this.#isThere(cgroup);
    this.#mayEnd = error instanceof FolderInUse || this.#news.last("addresses") !== "" || isAway;
    this.#news.tellOff(error);
  }

  /** Disconnects redirected UDP sockets: nothing would tell them that their endpoint is gone. They reconnect by the rules. */
  async #end(): Promise<void> {
    const { pins, disconnector, log } = this.#options;
    const sockets = this.#sockets;
    this.#sockets = undefined;
    if (sockets !== undefined) {
      const { maps, programs, stale, closed } = sockets;
      programs.close();
      closed.close();
      await stale.disconnectAll();
      maps.close();
    }
    try {
      pins?.hold();
      if (sockets !== undefined) pins?.end();
      else await pins?.endWithSockets(disconnector);
    } catch (error) {
      // Another process owns the folder, and its programs stay.
      if (!(error instanceof FolderInUse)) log.error(STUCK, error);
    }
  }

  #isThere(cgroup: string): boolean {
    return attempt(() => this.#options.bpf.cgroupId(cgroup)) !== undefined;
  }
}
