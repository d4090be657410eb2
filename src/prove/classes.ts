/**
 * All packets, divided so that those of one class take the same way through every subject. A class begins as all packets from one
 * kind of place. One packet of it is sent through the subjects; where something is compared that not all packets of the class have
 * alike, the class is reduced to those that agree with this packet, and the others are classes to be looked at later. So no
 * comparison is forgotten that decides anything, and none is looked at that no packet meets.
 */
import type { IpFamily } from "../net/ip.ts";
import { newPacket, type Origin, type Packet } from "../trace/packet.ts";
import { type ComparedField, type Key, PACKET_FIELDS, type PacketField, type Question } from "../trace/question.ts";
import { fits, type Parts, type Pattern, type Scalar } from "../trace/value.ts";
import type { Domain } from "./domain.ts";

/** A rule decides by something that packets cannot be divided by. */
export class UnprovableError extends Error {
  override readonly name = "UnprovableError";
}

/** Packets that have any combination of these values. */
export type PacketClass = Readonly<Record<PacketField, Domain>>;

/** Packets that are alike in where they come from. */
export interface RootClass {
  readonly packets: PacketClass;
  readonly origin: Origin;
}

/** One thing that becomes of packets: told what it compares as it compares it. */
export interface Subject<Fate> {
  fateOf(packet: Packet, asked: (question: Question, packet: Packet) => void): Fate;
}

export interface ProvedClass<Fate> {
  readonly packets: PacketClass;
  /** One of them. */
  readonly example: Packet;
  /** What becomes of all of them, by subject. */
  readonly fates: readonly Fate[];
}

interface OpenClass extends RootClass {
  /** Questions on which its packets agree. */
  readonly settled: ReadonlySet<Question>;
}

/** Questions with fewer keys are looked at one by one. */
const INDEXED_LENGTH = 16;

/** @param roots classes without a packet in common, that have all packets between them. */
export function* classesOf<Fate>(
  family: IpFamily,
  roots: readonly RootClass[],
  subjects: readonly Subject<Fate>[],
): Generator<ProvedClass<Fate>> {
  const open: OpenClass[] = roots.map((root) => ({ ...root, settled: new Set() }));
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const example = exampleOf(family, next);
    // What a machine sends to itself does not come by.
    if (example.inInterface !== "" && example.source === example.destination) continue;
    const narrowing = new Narrowing(next, example);
    const fates = subjects.map((subject) => {
      return subject.fateOf(narrowing.example, (question, packet) => narrowing.ask(question, packet));
    });
    open.push(...narrowing.others);
    yield { packets: narrowing.packets, example: narrowing.example, fates };
  }
}

function exampleOf(family: IpFamily, { packets, origin }: RootClass): Packet {
  const { source, sourcePort, destination, destinationPort, protocol, inInterface, bridgePort } = packets;
  const sender = addressIn(source, destination.isSingle ? addressIn(destination) : undefined);
  return newPacket({
    family,
    source: sender,
    sourcePort: Number(sourcePort.sample()),
    destination: addressIn(destination, sender),
    destinationPort: Number(destinationPort.sample()),
    protocol: String(protocol.sample()),
    inInterface: String(inInterface.sample()),
    bridgePort: String(bridgePort.sample()),
    origin,
  });
}

function addressIn(domain: Domain, other?: Packet["source"]): Packet["source"] {
  return domain.sample(other) as Packet["source"]; // domains of addresses have no other values
}

/** A class, reduced to the packets that agree with its example on each question. */
class Narrowing {
  readonly example: Packet;
  packets: PacketClass;
  readonly others: OpenClass[] = [];
  readonly #settled: Set<Question>;

  constructor({ packets, settled }: OpenClass, example: Packet) {
    this.packets = packets;
    this.#settled = new Set(settled);
    this.example = example;
  }

  /** @param packet the example as the subject has changed it by now. */
  ask(question: Question, packet: Packet): void {
    const isSettled = this.#settled.has(question);
    if (isSettled && (packet === this.example || question.fields.length === 1)) return;
    const parts = question.values(packet);
    if (parts === undefined) return;
    const freeFields = question.fields.map((field) => this.#freeField(field, packet));
    if (freeFields.every((field) => field === undefined)) return;
    if (parts.length !== question.fields.length)
      throw new UnprovableError(`a comparison of ${parts.join(" . ")} with other parts is not understood`);
    const areAllFree = freeFields.every((field, index) => field !== undefined || index === question.drawnPart);
    if (isSettled && areAllFree) return;
    let live: readonly Key[] = question.keys;
    const open: number[] = [];
    // What all packets of the class have alike leaves few keys to divide the others by.
    for (const [index, field] of freeFields.entries()) {
      if (index === question.drawnPart) continue;
      if (field !== undefined && !this.packets[field].isSingle) open.push(index);
      else live = keysAt(question, live, index, parts);
    }
    for (const [place, index] of open.entries()) {
      if (live.length === 0) break;
      const field = freeFields[index];
      const others = [...open.slice(place + 1), ...(question.drawnPart === undefined ? [] : [question.drawnPart])];
      if (field !== undefined) this.#divide(field, index, live, others);
      live = keysAt(question, live, index, parts);
    }
    // When the packet is changed it may be asked of other fields.
    if (areAllFree) this.#settled.add(question);
  }

  /** The field that a sender has chosen, if it is compared as it was sent and not all packets of the class have the same. */
  #freeField(field: ComparedField | undefined, packet: Packet): PacketField | undefined {
    if (field === undefined) return undefined;
    const name = PACKET_FIELDS.find((one) => field === one || field === `original ${one}`);
    if (name === undefined) return undefined;
    // A socket that is led elsewhere asks for something else from the beginning.
    const asked: Partial<Packet> = field === name ? packet : { ...packet, ...packet.original };
    const now = asked[name];
    if (now !== this.example[name]) return undefined;
    return name;
  }

  /** @param others the parts that are not looked at yet. */
  #divide(field: PacketField, index: number, live: readonly Key[], others: readonly number[]): void {
    const domain = this.packets[field];
    const patterns = live.map((key) => key.patterns[index]).filter((pattern) => pattern !== undefined);
    const tails = live.map((key) => tailOf(key, others));
    const parts = domain.divided(patterns, (fitting) => fitting.map((at) => tails[at]).join("\n"));
    if (parts.length === 1) return;
    const value = this.example[field];
    const settled: ReadonlySet<Question> = new Set(this.#settled);
    for (const part of parts) {
      const packets: PacketClass = { ...this.packets, [field]: part };
      if (value !== undefined && part.has(value)) this.packets = packets;
      else this.others.push({ packets, origin: this.example.origin, settled });
    }
  }
}

/** By a part of their keys: those that are for one value, and those that are for more. */
interface KeyIndex {
  readonly exact: ReadonlyMap<Scalar, readonly Key[]>;
  readonly others: readonly Key[];
}

const indices = new WeakMap<Question, (KeyIndex | undefined)[]>();

/** The keys whose part at this index fits what the packet has there. */
function keysAt(question: Question, live: readonly Key[], index: number, parts: Parts): readonly Key[] {
  const value = parts[index] ?? "";
  if (live !== question.keys || live.length < INDEXED_LENGTH) {
    return live.filter(({ patterns }) => fits(patterns[index] ?? ANYTHING, value));
  }
  const known = indices.get(question) ?? [];
  indices.set(question, known);
  const found = known[index] ?? indexOf(live, index);
  known[index] = found;
  const others = found.others.filter(({ patterns }) => fits(patterns[index] ?? ANYTHING, value));
  const exact = found.exact.get(value) ?? [];
  return others.length === 0 ? exact : [...exact, ...others];
}

function indexOf(keys: readonly Key[], index: number): KeyIndex {
  const exact = new Map<Scalar, Key[]>();
  const others: Key[] = [];
  for (const key of keys) {
    const pattern = key.patterns[index];
    if (pattern?.kind !== "exact") others.push(key);
    else if (exact.has(pattern.value)) exact.get(pattern.value)?.push(key);
    else exact.set(pattern.value, [key]);
  }
  return { exact, others };
}

const ANYTHING: Pattern = { kind: "beginning", text: "" };

/** What else a key says. */
function tailOf({ patterns, outcome }: Key, others: readonly number[]): string {
  const rest = others.map((at) => patternText(patterns[at] ?? ANYTHING));
  return `${rest.join(" . ")} : ${outcome}`;
}

function patternText(pattern: Pattern): string {
  switch (pattern.kind) {
    case "exact":
      return String(pattern.value);
    case "range":
      return `${pattern.first}-${pattern.last}`;
    case "beginning":
      return `${pattern.text}*`;
  }
}
