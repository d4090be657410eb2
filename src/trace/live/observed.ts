/**
 * Assembles the kernel's trace messages into packets: which base chains each packet met, in which state, and how its path ended.
 * Messages of different packets arrive interleaved.
 */
import type { TracedConnection, TracedHeaders, TraceEvent } from "../../kernel/nftables/tracing/trace-event.ts";
import { TRACE_TABLE } from "../../kernel/nftables/tracing/trace-table.ts";

/** One base chain that a packet met. */
export interface ObservedVisit {
  /** NFPROTO_* of the table. */
  readonly family: number;
  readonly table: string;
  readonly chain: string;
  /** The headers when the packet entered the chain. */
  readonly headers: TracedHeaders;
  readonly mark: number;
  readonly connection: TracedConnection | undefined;
  readonly events: readonly TraceEvent[];
}

/** A packet, from the first hook to its last message. */
export interface ObservedPacket {
  readonly visits: readonly ObservedVisit[];
  readonly end: "sent" | "delivered" | "dropped" | "vanished";
}

interface OpenPacket {
  readonly visits: (ObservedVisit & { readonly events: TraceEvent[] })[];
  lastMs: number;
}

const NF_DROP = 0;
/** The index of the loopback interface, in every network namespace. */
const LOOPBACK = 1;
/** The kernel handles a packet without a pause: after this long without a message, something else has consumed it. */
const SILENCE_MS = 500;

export class PacketAssembler {
  readonly #onPacket: (packet: ObservedPacket) => void;
  /** By the kernel's trace ID; what the node has sent to itself by its headers, as it gets a new ID when it comes in. */
  readonly #open = new Map<number | string, OpenPacket>();

  /** @param onPacket called with each packet whose path has ended. */
  constructor(onPacket: (packet: ObservedPacket) => void) {
    this.#onPacket = onPacket;
  }

  /** How many packets have not ended. */
  get openPackets(): number {
    return this.#open.size;
  }

  /** Adds a message. @param nowMs the time of any monotonic clock. */
  add(event: TraceEvent, nowMs: number): void {
    const packet = this.#packetOf(event);
    if (packet === undefined) return;
    packet.lastMs = nowMs;
    const { family, table, chain, headers, mark, connection } = event;
    if (headers !== undefined) packet.visits.push({ family, table, chain, headers, mark, connection, events: [] });
    const visit = packet.visits.at(-1);
    if (visit === undefined) return;
    visit.events.push(event);
    if (event.kind !== "return" && event.verdict.code === NF_DROP) this.#finish(event.id, packet, "dropped");
    else if (table === TRACE_TABLE && event.kind === "policy") this.#atTheEnd(event, packet, visit);
  }

  /** Ends packets without a recent message. @param nowMs of the same clock. */
  giveUp(nowMs: number): void {
    for (const [key, packet] of this.#open) {
      if (nowMs - packet.lastMs > SILENCE_MS) this.#finish(key, packet, "vanished");
    }
  }

  #packetOf({ id, table, chain, kind, headers }: TraceEvent): OpenPacket | undefined {
    const known = this.#open.get(id);
    if (known !== undefined) return known;
    // Skips packets that other programs trace.
    if (table !== TRACE_TABLE || headers === undefined) return undefined;
    const key = headersKey(headers);
    const looped = chain === "prerouting" && headers.inInterface === LOOPBACK ? this.#open.get(key) : undefined;
    if (looped === undefined && kind !== "rule") return undefined;
    this.#open.delete(key);
    const packet = looped ?? { visits: [], lastMs: 0 };
    this.#open.set(id, packet);
    return packet;
  }

  /** At our own chain, the last one of its hook. */
  #atTheEnd({ id, chain }: TraceEvent, packet: OpenPacket, { headers }: ObservedVisit): void {
    if (chain === "input") this.#finish(id, packet, "delivered");
    if (chain !== "postrouting") return;
    if (headers.outInterface !== LOOPBACK) {
      this.#finish(id, packet, "sent");
      return;
    }
    this.#open.delete(id);
    this.#open.set(headersKey(headers), packet);
  }

  #finish(key: number | string, { visits }: OpenPacket, end: ObservedPacket["end"]): void {
    this.#open.delete(key);
    this.#onPacket({ visits, end });
  }
}

function headersKey({ network, transport }: TracedHeaders): string {
  return `${Buffer.from(network).toString("hex")} ${Buffer.from(transport).toString("hex")}`;
}
