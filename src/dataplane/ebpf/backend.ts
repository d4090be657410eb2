/**
 * The eBPF mode for one family: the backend of the packet path, and in front of it programs that decide at the socket. The packet
 * path is whole by itself, so what goes wrong here costs speed and no service.
 */
import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import type { AddressWatch } from "../../kernel/route/address-watch.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import { type IpFamily, isLoopback } from "../../net/ip.ts";
import type { Backend, LostRules, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import type { EbpfMetrics } from "./metrics.ts";
import { SocketMaps } from "./socket-maps.ts";
import { type SocketProgramOptions, SocketPrograms } from "./socket-programs.ts";

export interface EbpfBackendOptions {
  /** Leads what no program decides. */
  readonly packetPath: Backend;
  readonly bpf: Bpf;
  /** The folder of the cgroup that holds all processes of the node; undefined: nothing is decided at the socket. */
  readonly cgroup: string | undefined;
  readonly nodeName: string;
  /** See {@link SocketPlanFacts}. */
  readonly detectsPods: boolean;
  readonly nodePortAddresses: NodePortAddresses;
  /** What the programs are told. May throw: then nothing is decided at the socket. */
  readonly programs: () => SocketProgramOptions;
  readonly localAddresses: LocalAddresses;
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly metrics: EbpfMetrics;
  readonly log: Logger;
  /** Monotonic. @default performance.now */
  readonly nowMs?: () => number;
  /** @default every 10 ms */
  readonly yielder?: Yielder;
}

/** The socket programs at work. */
interface Sockets {
  readonly maps: SocketMaps;
  readonly programs: SocketPrograms;
}

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
  /** What was logged last of why nothing is decided at the socket. */
  #complaint: string | undefined;
  #refusals = "";

  constructor(options: EbpfBackendOptions) {
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
    return this.#sockets?.programs.isAttached ?? false;
  }

  /** What the maps hold, for tests. */
  get sockets(): readonly string[] {
    return this.#sockets?.maps.state() ?? [];
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    // The maps first: they take microseconds, the packet path milliseconds. Each path is right by itself.
    try {
      await this.#syncSockets(input, signal);
    } catch (error) {
      signal.throwIfAborted();
      this.#giveUp(error);
    }
    const { packetPath, metrics } = this.#options;
    metrics.attached.set(this.isAttached ? 1 : 0);
    metrics.passedPorts.set(this.#sockets?.maps.refused.size ?? 0);
    return packetPath.sync(input, signal);
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
      await Promise.all([addressWatch.watch(onAddress, ended), packetPath.monitor?.(onLost, ended, requestSync)]);
    } finally {
      // When one of them fails, both are started again.
      stop.abort();
    }
  }

  async close(): Promise<void> {
    this.#end();
    await this.#options.packetPath.close?.();
  }

  async #syncSockets(input: SyncInput, signal: AbortSignal): Promise<void> {
    const { cgroup } = this.#options;
    if (cgroup === undefined) return;
    const isNew = this.#sockets === undefined;
    // Where they could not work, they are tried again with each full sync.
    if (isNew && !input.isFullSync) return;
    const sockets = this.#sockets ?? this.#open(input);
    this.#sockets = sockets;
    const { maps, programs } = sockets;
    const { services, endpoints, zone } = input;
    const { nodeName, detectsPods } = this.#options;
    const facts = { nodeName, detectsPods, zone };
    const isFull = input.isFullSync || isNew;
    const concerned = await this.#readAddresses(maps, signal);
    const wanted: Iterable<string> = isFull ? services.keys() : [...input.changedPorts, ...concerned];
    const owned: Iterable<string> = isFull ? maps.keys : input.changedPorts;
    for (const key of owned) maps.release(key, services.get(key));
    for (const key of [...maps.refused.keys(), ...wanted]) {
      const port = services.get(key);
      if (port !== undefined) maps.set(key, port, endpoints.get(key) ?? [], facts);
      if (this.#yielder.isDue()) await this.#yielder.turn(signal);
    }
    if (programs.isOrphaned) programs.close();
    if (!programs.isAttached) this.#attach(sockets, cgroup);
    this.#tellRefusals(maps.refused);
  }

  #open({ services, endpointCount }: SyncInput): Sockets {
    const { bpf } = this.#options;
    const programs = new SocketPrograms(bpf, this.family, this.#options.programs());
    const maps = new SocketMaps(
      { bpf, family: this.family, onMoved: (open) => programs.load(open), nowMs: this.#nowMs },
      { services: services.size, endpoints: endpointCount },
    );
    try {
      programs.load(maps.open);
    } catch (error) {
      maps.close();
      throw error;
    }
    return { maps, programs };
  }

  #attach({ maps, programs }: Sockets, cgroup: string): void {
    const { log } = this.#options;
    programs.load(maps.open);
    programs.attach(cgroup);
    this.#complaint = undefined;
    log.info("Connections to services are decided at the socket", { cgroup });
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

  /** The packet path leads everything until it works again. */
  #giveUp(error: unknown): void {
    this.#end();
    const reason = error instanceof Error ? error.message : String(error);
    if (reason === this.#complaint) return;
    this.#complaint = reason;
    this.#options.log.error("Nothing is decided at the socket; the nftables rules lead all packets", error);
  }

  #tellRefusals(refused: ReadonlyMap<string, string>): void {
    const names = [...refused.keys()].sort().join(", ");
    if (names === this.#refusals) return;
    this.#refusals = names;
    if (names === "") return;
    const [reason = ""] = refused.values();
    this.#options.log.error("Service ports that are not decided at the socket", new Error(reason), { names });
  }

  #end(): void {
    this.#sockets?.programs.close();
    this.#sockets?.maps.close();
    this.#sockets = undefined;
    this.#areAddressesKnown = false;
  }
}
