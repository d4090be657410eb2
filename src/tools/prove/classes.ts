/**
 * Divides all packets into classes: packets of one class take the same path through every subject. A class starts as all packets from
 * one kind of place. One of its packets goes through the subjects. Whenever they compare a field in which packets of the class differ,
 * the class shrinks to the packets that agree with this one, and the others become classes for later. So every comparison that decides
 * anything is examined, and none that no packet reaches.
 */
import type { IpFamily } from "../../net/ip.ts";
import type { WalkObserver } from "../../trace/netfilter/observer.ts";
import { newPacket, type Origin, type Packet } from "../../trace/packet.ts";
import { PatternIndex } from "../../trace/pattern-index.ts";
import { type ComparedField, type Key, PACKET_FIELDS, type PacketField, type Question } from "../../trace/question.ts";
import { fits, type Pattern, type SomeParts } from "../../trace/value.ts";
import { type Domain, Groups } from "./domain.ts";

/** A rule depends on something by which packets cannot be divided into classes. */
export class UnprovableError extends Error {
  override readonly name = "UnprovableError";
}

/** All packets whose fields combine any of these values. */
export type PacketClass = Readonly<Record<PacketField, Domain>>;

/** All packets from one kind of place. */
export interface RootClass {
  readonly packets: PacketClass;
  readonly origin: Origin;
}

/** Decides the fate of packets, and calls `asked` for every comparison it makes. */
export interface Subject<Fate> {
  fateOf(packet: Packet, asked: WalkObserver["asked"]): Fate;
}

export interface ProvedClass<Fate> {
  readonly packets: PacketClass;
  /** One of them. */
  readonly example: Packet;
  /** The fate of every packet of the class, one for each subject. */
  readonly fates: readonly Fate[];
  /** Why the packets of the class have no fate that is known. */
  readonly unproved: string | undefined;
}

interface OpenClass extends RootClass {
  /** Which rules made it one of so many that not all may be tried ({@link Spare}). */
  readonly beyond: string | undefined;
  /** Questions that all its packets answer alike: the first of those that another class has settled, and those before them. */
  readonly settled: { readonly own: ReadonlySet<Question>; readonly count: number; readonly before: Layer | undefined };
}

interface Layer {
  readonly own: ReadonlySet<Question>;
  readonly before: Layer | undefined;
}

/**
 * What the classes may cost that only rules beside the Services make, where these compare with thousands of values, or are a long way:
 * a dump with rules by the hundred thousand gets its answer in bounded time. In comparisons.
 */
class Spare {
  #left = 5_000_000;

  get isUsedUp(): boolean {
    return this.#left < 0;
  }

  spend(comparisons: number): void {
    this.#left -= comparisons;
  }
}

/** What it costs to make a class, and to examine it, in comparisons. */
const [COST_OF_PART, COST_OF_CLASS] = [16, 48];

const notTried = (what: string) => `${what} do so many different things that not all packets were tried`;

/** More questions than this are not copied from class to class. */
const COPIED = 256;

class Settled {
  #own = new Set<Question>();
  #before: Layer | undefined;

  constructor({ own, count, before }: OpenClass["settled"]) {
    this.#before = before;
    for (const question of own) {
      if (this.#own.size === count) break;
      this.#own.add(question);
    }
  }

  /** For a class that is divided from this one. */
  get now(): OpenClass["settled"] {
    if (this.#own.size > COPIED) {
      this.#before = { own: this.#own, before: this.#before };
      this.#own = new Set();
    }
    return { own: this.#own, count: this.#own.size, before: this.#before };
  }

  add(question: Question): void {
    this.#own.add(question);
  }

  has(question: Question): boolean {
    if (this.#own.has(question)) return true;
    for (let layer = this.#before; layer !== undefined; layer = layer.before) if (layer.own.has(question)) return true;
    return false;
  }
}

/** Of shorter questions nothing is kept: their keys are scanned. */
const INDEXED_LENGTH = 16;

/** @param roots disjoint classes that together contain all packets. */
export function* classesOf<Fate>(
  family: IpFamily,
  roots: readonly RootClass[],
  subjects: readonly Subject<Fate>[],
): Generator<ProvedClass<Fate>> {
  const open: OpenClass[] = roots.map((root) => ({
    ...root,
    settled: { own: new Set<Question>(), count: 0, before: undefined },
    beyond: undefined,
  }));
  const parts = new WeakMap<Question, number>();
  const spare = new Spare();
  const named = new Set<string>();
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const example = exampleOf(family, next);
    // A machine's packets to itself do not pass through this node.
    if (example.inInterface !== "" && example.source === example.destination) continue;
    if (next.beyond !== undefined) spare.spend(COST_OF_CLASS);
    if (next.beyond !== undefined && spare.isUsedUp) {
      if (!named.has(next.beyond)) yield { packets: next.packets, example, fates: [], unproved: notTried(next.beyond) };
      named.add(next.beyond);
      continue;
    }
    const narrowing = new Narrowing(next, example, parts, spare);
    const fates: Fate[] = [];
    let unproved: string | undefined;
    try {
      for (const [place, subject] of subjects.entries())
        fates.push(
          subject.fateOf(narrowing.example, (question, packet, chain) => narrowing.ask(question, packet, place, chain)),
        );
    } catch (error) {
      if (!(error instanceof UnprovableError)) throw error;
      unproved = error.message;
    }
    open.push(...narrowing.others);
    yield { packets: narrowing.packets, example: narrowing.example, fates, unproved };
    for (const { because, ...left } of narrowing.left)
      yield { packets: left.packets, example: exampleOf(family, left), fates: [], unproved: because };
  }
}

function exampleOf(family: IpFamily, { packets, origin }: RootClass): Packet {
  const { source, sourcePort, destination, destinationPort, protocol, inInterface, bridgePort, udpLength } = packets;
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
    udpLength: Number(udpLength.sample()),
    origin,
  });
}

/** Another packet of a class, to another port; undefined if all are to one. */
export function toAnotherPort({ destinationPort }: PacketClass, example: Packet): Packet | undefined {
  if (destinationPort.isSingle) return undefined;
  const to = { destinationPort: Number(destinationPort.sample(example.destinationPort)) };
  return { ...example, ...to, original: { ...example.original, ...to } };
}

function addressIn(domain: Domain, other?: Packet["source"]): Packet["source"] {
  return domain.sample(other) as Packet["source"]; // address domains contain nothing else
}

/** A class that each question reduces to the packets that agree with its example. */
class Narrowing {
  readonly example: Packet;
  packets: PacketClass;
  readonly others: OpenClass[] = [];
  /** Those that are not examined. */
  readonly left: (RootClass & { readonly because: string })[] = [];
  readonly #settled: Settled;
  readonly #parts: WeakMap<Question, number>;
  readonly #spare: Spare;
  #beyond: string | undefined;

  /** @param parts into how many parts each question has divided classes so far. */
  constructor(
    { packets, settled, beyond }: OpenClass,
    example: Packet,
    parts: WeakMap<Question, number>,
    spare: Spare,
  ) {
    this.packets = packets;
    this.#beyond = beyond;
    this.#spare = spare;
    this.#settled = new Settled(settled);
    this.example = example;
    this.#parts = parts;
  }

  /**
   * @param packet the example, with the subject's changes so far. @param subject its index: the first says what the Services ask.
   * @param chain of rules that are a long way, if that is where the packet is
   */
  ask(question: Question, packet: Packet, subject: number, chain?: string): void {
    if (chain !== undefined) this.#beyond ??= `the rules of ${chain}`;
    if (this.#beyond !== undefined) {
      this.#spare.spend(1);
      if (chain !== undefined && this.#spare.isUsedUp) throw new UnprovableError(notTried(this.#beyond));
    }
    const isSettled = this.#settled.has(question);
    if (isSettled && (packet === this.example || question.fields.length === 1)) return;
    const parts = question.values(packet);
    if (parts === undefined) return;
    const freeFields = question.fields.map((field, at) =>
      parts[at] === undefined ? undefined : this.#freeField(field, packet),
    );
    if (freeFields.every((field) => field === undefined)) return;
    if (parts.length !== question.fields.length)
      throw new UnprovableError(`a comparison of ${parts.join(" . ")} with other parts is not understood`);
    const areAllFree = freeFields.every((field, index) => field !== undefined || index === question.drawnPart);
    if (isSettled && areAllFree) return;
    let live: readonly Key[] = question.keys;
    const open: number[] = [];
    // Fields in which the class does not vary leave few keys for dividing it by the others.
    for (const [index, field] of freeFields.entries()) {
      if (index === question.drawnPart) continue;
      if (field !== undefined && !this.packets[field].isSingle) open.push(index);
      else live = keysAt(question, live, index, parts);
    }
    for (const [place, index] of open.entries()) {
      if (live.length === 0) break;
      const field = freeFields[index];
      const others = [...open.slice(place + 1), ...(question.drawnPart === undefined ? [] : [question.drawnPart])];
      if (field !== undefined) this.#divide(question, field, index, live, others, subject > 0);
      live = keysAt(question, live, index, parts);
    }
    // After a change of the packet, the same question may concern other fields.
    if (areAllFree) this.#settled.add(question);
  }

  /** The field that the sender chose; undefined if the compared value is no longer the one it sent. */
  #freeField(field: ComparedField | undefined, packet: Packet): PacketField | undefined {
    if (field === undefined) return undefined;
    const name = PACKET_FIELDS.find((one) => field === one || field === `original ${one}`);
    if (name === undefined) return undefined;
    // A socket that is redirected before it connects has another original destination.
    const asked: Partial<Packet> = field === name ? packet : { ...packet, ...packet.original };
    const now = asked[name];
    if (now !== this.example[name]) return undefined;
    return name;
  }

  /** @param others indices of the parts that are still to be divided. */
  #divide(
    question: Question,
    field: PacketField,
    index: number,
    live: readonly Key[],
    others: readonly number[],
    isOfRules: boolean,
  ): void {
    const parts = this.packets[field].divided(groupsOf(question, index, live, others));
    if (parts.length === 1) return;
    const value = this.example[field];
    // Of a comparison of one field, nothing is left to ask in any part.
    if (question.fields.length === 1) this.#settled.add(question);
    const settled = this.#settled.now;
    const { origin } = this.example;
    const isMany = parts.length > FEW_PARTS;
    const compared = `rules that compare the ${field} with ${question.keys.length} values`;
    const beyond = this.#beyond ?? (isMany && isOfRules ? compared : undefined);
    const made = isMany ? (this.#parts.get(question) ?? 0) + parts.length : 0;
    if (beyond !== undefined) this.#spare.spend(COST_OF_PART * parts.length);
    const isTooMany = (beyond !== undefined && this.#spare.isUsedUp) || made > MOST_PARTS + 5 * question.keys.length;
    if (isMany && !isTooMany) this.#parts.set(question, made);
    let left: PacketClass | undefined;
    for (const part of parts) {
      const packets: PacketClass = { ...this.packets, [field]: part };
      if (value !== undefined && part.has(value)) this.packets = packets;
      else if (isTooMany) left ??= packets;
      else this.others.push({ packets, origin, settled, beyond });
    }
    if (left !== undefined) this.left.push({ packets: left, origin, because: notTried(beyond ?? compared) });
  }
}

/** Into how many parts one question may divide classes, and how many never count. */
const MOST_PARTS = 200_000;
const FEW_PARTS = 100;

/** The groups of long questions, by which part they divide and which are left. */
const groups = new WeakMap<Question, Map<string, Groups>>();

/** As many keys may overlap in all. */
const MOST_OVERLAPS = 5_000_000;

/** @param others indices of the parts that are still to be divided. */
function groupsOf(question: Question, index: number, live: readonly Key[], others: readonly number[]): Groups {
  const isLong = live === question.keys && live.length >= INDEXED_LENGTH;
  const kept = isLong ? (groups.get(question) ?? new Map<string, Groups>()) : undefined;
  const name = `${index} ${others}`;
  const known = kept?.get(name);
  if (known !== undefined) return known;
  const patterns = live.map((key) => key.patterns[index]).filter((pattern) => pattern !== undefined);
  const tails = live.map((key) => tailOf(key, others));
  let overlaps = 0;
  const found = new Groups(patterns, (fitting) => {
    overlaps += fitting.length;
    if (overlaps > MOST_OVERLAPS)
      throw new UnprovableError(`${live.length} ranges with which rules compare overlap too often to be told apart`);
    return fitting.map((at) => tails[at]).join("\n");
  });
  if (kept !== undefined) groups.set(question, kept.set(name, found));
  return found;
}

const indices = new WeakMap<Question, (PatternIndex<Key> | undefined)[]>();

/** The keys whose part at this index fits the packet's value. */
function keysAt(question: Question, live: readonly Key[], index: number, parts: SomeParts): readonly Key[] {
  const value = parts[index];
  if (value === undefined) return live;
  const patternOf = ({ patterns }: Key) => patterns[index] ?? ANYTHING;
  if (live !== question.keys || live.length < INDEXED_LENGTH) return live.filter((key) => fits(patternOf(key), value));
  const known = indices.get(question) ?? [];
  indices.set(question, known);
  known[index] ??= new PatternIndex(live, patternOf);
  return known[index].at(value);
}

const ANYTHING: Pattern = { kind: "beginning", text: "" };

/** The rest of a key: its other parts and its outcome. */
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
