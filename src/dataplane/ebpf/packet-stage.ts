/**
 * The packet path of one family with programs at the node's interfaces in front of it: for packets of other machines they choose the
 * endpoint, and the kernel's conntrack translates. The backend of the rules is whole by itself and leads what they leave alone, so
 * what goes wrong here costs speed and no service (reference ebpf.md §2.3).
 */
import { SliceYielder, type Yielder } from "../../async/yielder.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import type { AddressWatch } from "../../kernel/route/address-watch.ts";
import type { Links } from "../../kernel/route/links.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import { familyOf, type IpAddress, isLoopback } from "../../net/ip.ts";
import type { Backend, OnLostRules, SyncFailure, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import type { PacketMetrics } from "./metrics.ts";
import { type InterfaceChoice, nodeInterfaces } from "./packet-interfaces.ts";
import { planPackets } from "./packet-plan.ts";
import { PacketPrograms } from "./packet-programs.ts";
import { SocketMaps } from "./socket-maps.ts";

export interface PacketStageOptions {
  /** The rules, which lead all that no program decides. */
  readonly rules: Backend;
  readonly bpf: Bpf;
  readonly links: Pick<Links, "addresses" | "link">;
  /** An interface that comes or goes brings or takes its addresses. */
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly interfaces: InterfaceChoice;
  readonly nodeName: string;
  readonly masqueradesAll: boolean;
  readonly nodePortAddresses: NodePortAddresses;
  readonly metrics: PacketMetrics;
  readonly log: Logger;
  /** Monotonic. @default performance.now */
  readonly nowMs?: () => number;
  /** @default every 10 ms */
  readonly yielder?: Yielder;
}

/** Maps of sockets' memories are not used here. */
const REMEMBERED = 64;
const NOT_LED = "No packets are led by programs; the nftables rules lead all packets";
const LESSER = "no packets are led by programs";
const NO_INTERFACE = "no interface has the node's address (ebpf.packetInterfaces)";

interface Packets {
  readonly maps: SocketMaps;
  readonly programs: PacketPrograms;
}

export class PacketStage implements Backend {
  readonly mode: string;
  readonly family: Backend["family"];
  readonly usesServiceCIDRs: boolean;
  readonly #options: PacketStageOptions;
  readonly #yielder: Yielder;
  readonly #nowMs: () => number;
  /** Undefined before the first sync, and where the kernel does not let us. */
  #packets: Packets | undefined;
  #areInterfacesKnown = false;
  #chosen: ReadonlyMap<number, string> = new Map();
  /** What was logged last. */
  #complaint = "";
  #attached: string | undefined;

  constructor(options: PacketStageOptions) {
    this.#options = options;
    const { rules } = options;
    this.mode = rules.mode;
    this.family = rules.family;
    this.usesServiceCIDRs = rules.usesServiceCIDRs ?? false;
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#yielder = options.yielder ?? new SliceYielder();
  }

  get restMs(): number {
    return this.#options.rules.restMs ?? 0;
  }

  get degraded(): readonly SyncFailure[] {
    const { maps } = this.#packets ?? {};
    const lesser = this.#complaint === "" ? [] : [{ subject: LESSER, reason: this.#complaint }];
    if (maps !== undefined && this.#attached === "") lesser.push({ subject: LESSER, reason: NO_INTERFACE });
    const [refusal] = maps?.refused.values() ?? [];
    const passing = `packets to ${maps?.refused.size} service ports take the rules`;
    if (refusal !== undefined) lesser.push({ subject: passing, reason: refusal });
    return [...lesser, ...(this.#options.rules.degraded ?? [])];
  }

  /** What the maps hold, for tests. */
  get frontends(): readonly string[] {
    return this.#packets?.maps.state() ?? [];
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const { rules, metrics } = this.#options;
    // What translates is loaded, where it is a module, and switched on by the first rules of the table.
    const isFirst = this.#packets === undefined;
    if (!isFirst) await this.#try(() => this.#syncMaps(input, signal), signal);
    const outcome = await rules.sync(input, signal);
    if (isFirst) await this.#try(() => this.#syncMaps(input, signal), signal);
    await this.#try(async () => this.#attach(), signal);
    metrics.packetInterfaces.set(this.#packets?.programs.interfaces ?? 0);
    return outcome;
  }

  async monitor(onLost: OnLostRules, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const { rules, addressWatch } = this.#options;
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    const onChange = (): void => {
      // A burst of announcements is one sync.
      if (!this.#areInterfacesKnown) return;
      this.#areInterfacesKnown = false;
      requestSync();
    };
    try {
      await Promise.all([addressWatch.watch(onChange, ended), rules.monitor?.(onLost, ended, requestSync)]);
    } finally {
      // When one of them fails, both are started again.
      stop.abort();
    }
  }

  async close(): Promise<void> {
    this.#end();
    await this.#options.rules.close?.();
  }

  async #try(work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    try {
      await work();
    } catch (error) {
      signal.throwIfAborted();
      this.#end();
      const reason = messageOf(error);
      if (reason === this.#complaint) return;
      this.#complaint = reason;
      this.#options.log.error(NOT_LED, error);
    }
  }

  async #syncMaps(input: SyncInput, signal: AbortSignal): Promise<void> {
    const isNew = this.#packets === undefined;
    // Where they could not work, they are tried again with each full sync.
    if (isNew && !input.isFullSync) return;
    const packets = this.#packets ?? this.#open(input);
    this.#packets = packets;
    // A name that changes is not announced.
    if (input.isFullSync) this.#areInterfacesKnown = false;
    await this.#readInterfaces(packets, signal);
    const { maps } = packets;
    const { services, endpoints, zone } = input;
    const { nodeName, masqueradesAll, interfaces } = this.#options;
    const facts = { nodeName, zone, masqueradesAll, detectsPods: interfaces.detector.kind !== "none" };
    const isFull = input.isFullSync || isNew;
    for (const key of isFull ? maps.keys : input.changedPorts) maps.release(key, services.get(key));
    for (const key of [...maps.refused.keys(), ...(isFull ? services.keys() : input.changedPorts)]) {
      const port = services.get(key);
      if (port !== undefined) maps.set(key, port, endpoints.get(key) ?? [], facts);
      if (this.#yielder.isDue()) await this.#yielder.turn(signal);
    }
    maps.settle();
  }

  #open({ services, endpointCount }: SyncInput): Packets {
    const { bpf, interfaces, masqueradesAll } = this.#options;
    const { detector } = interfaces;
    const podRange = detector.kind === "cidr" ? detector.cidr : undefined;
    const programs = new PacketPrograms(bpf, this.family, { podRange });
    try {
      const maps = new SocketMaps(
        {
          bpf,
          family: this.family,
          onMoved: (open) => programs.load(open),
          plan: (port, endpoints, facts) => planPackets(port, endpoints, { ...facts, masqueradesAll }),
          remembered: REMEMBERED,
          nowMs: this.#nowMs,
        },
        { services: services.size, endpoints: endpointCount },
      );
      try {
        programs.load(maps.open);
      } catch (error) {
        maps.close();
        throw error;
      }
      return { maps, programs };
    } catch (error) {
      programs.close();
      throw error;
    }
  }

  async #readInterfaces({ maps, programs }: Packets, signal: AbortSignal): Promise<void> {
    if (this.#areInterfacesKnown) return;
    this.#areInterfacesKnown = true;
    try {
      const { links, interfaces, nodePortAddresses: wanted } = this.#options;
      const { chosen, addresses } = await nodeInterfaces(links, interfaces, signal);
      const own: IpAddress[] = [...addresses].filter((address) => familyOf(address) === this.family);
      const answering = nodePortIPs(wanted, own);
      const answers = answering.kind === "all" ? own : answering.ips;
      maps.setNodeAddresses(new Set(answers.filter((address) => !isLoopback(address))));
      programs.setOwnAddresses(new Set(own));
      this.#chosen = chosen;
    } catch (error) {
      this.#areInterfacesKnown = false;
      throw error;
    }
  }

  #attach(): void {
    if (this.#packets === undefined) return;
    this.#packets.programs.attach(new Set(this.#chosen.keys()));
    this.#complaint = "";
    const names = [...this.#chosen.values()].sort().join(", ");
    if (names === this.#attached) return;
    this.#attached = names;
    const { log } = this.#options;
    if (names === "") log.warn("No interface has the node's address: packets take the rules (ebpf.packetInterfaces)");
    else log.info("Packets of other machines to services are led by programs", { interfaces: names });
  }

  #end(): void {
    this.#packets?.programs.close();
    this.#packets?.maps.close();
    this.#packets = undefined;
    this.#areInterfacesKnown = false;
    this.#attached = undefined;
  }
}
