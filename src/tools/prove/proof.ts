/** Whether two sides do the same with every packet of one family, on one node. */
import { getHeapStatistics } from "node:v8";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { prefixPatterns, SPECIAL_RANGES } from "../../trace/facts.ts";
import type { Packet } from "../../trace/packet.ts";
import type { Question } from "../../trace/question.ts";
import type { Pattern } from "../../trace/value.ts";
import type { Ask } from "./asking.ts";
import {
  classesOf,
  type PacketClass,
  type RootClass,
  type Subject,
  toAnotherPort,
  UnprovableError,
} from "./classes.ts";
import { addressDomain, Names, onlyAddresses, PORTS, UDP_LENGTHS } from "./domain.ts";
import { DROPPED, type Fate, fateText, isSameFate, RANGE_UNKNOWN } from "./fate.ts";
import { isInProxyTable } from "./node-components.ts";

/** One of the two sides. */
export interface Side {
  readonly name: string;
  readonly fates: Subject<Fate>;
  /** Addresses that belong to the node because the rules require it. @default none */
  readonly addresses?: readonly IpAddress[];
  /** Matches packets sent straight to sockets that only rules should lead to. @default the sockets are not known */
  readonly ownSockets?: readonly Question[];
  /** Whether the shares of many endpoints only need to be nearly equal. @default false */
  readonly hasSlots?: boolean;
  /** Whether sockets are redirected before there is a packet. @default false */
  readonly hasSocketStage?: boolean;
  /** What any packet may meet, and the walk does not: nothing is equal then. @default nothing */
  readonly doubts?: readonly string[];
  /** @throws UnprovableError for packets that come in where something is not read */
  readonly enter?: (packet: Packet, asked: Ask) => void;
  /** What the proxy's rules do alone. @default no rule of a known program and no setting is beside them */
  readonly proxyPart?: Subject<Fate> | undefined;
  /** The rule that ends the packet's way. @param isOfProxy as {@link proxyPart} has it. @default false */
  whoDecides?(packet: Packet, isOfProxy?: boolean): string | undefined;
  /** The Service that the packet addresses, if the side knows Services. */
  serviceOf?(packet: Packet): string | undefined;
  /** Why the packet has this fate: its path through the rules, or what its Service says. */
  why(packet: Packet): string;
}

export interface Counterexample {
  readonly packet: Packet;
  /** What the two sides do with it. */
  readonly fates: readonly [Fate, Fate];
}

/** What is not understood, and one of the packets that meet it. */
export interface Unproved {
  readonly because: string;
  readonly packet: Packet;
}

/** What other programs do with packets that the proxy treats as it should. */
export interface OtherFate {
  readonly packet: Packet;
  readonly fate: Fate;
  readonly by: string | undefined;
}

export interface Proof {
  /** How many classes were examined. */
  readonly classes: number;
  readonly seconds: number;
  /** How many of them the two sides treat differently. */
  readonly differing: number;
  /** One packet for each of the first {@link EXAMPLES} kinds of difference. */
  readonly examples: readonly Counterexample[];
  /** Why this is no proof of all packets, such as a rule that is not understood. */
  readonly unprovable: string | undefined;
  /** What any packet may meet, and was not walked ({@link Side.doubts}). */
  readonly doubts: readonly string[];
  /** How many classes are not proved. */
  readonly unproved: number;
  /** The first {@link EXAMPLES} reasons for that. */
  readonly gaps: readonly Unproved[];
  /** How many classes other programs on the node treat differently ({@link Side.proxyPart}), and some of them. */
  readonly others: { readonly classes: number; readonly examples: readonly OtherFate[] };
}

const EXAMPLES = 5;
/** How many classes are examined between two checks of the heap, and how many comparisons of one packet. */
const MEMORY_CHECK = 100;
const COMPARISONS_CHECK = 1_000;
/** The usable share of the heap. */
const USABLE_HEAP = 0.85;
/** V8's heap limit includes this for young objects by default: three times 64 MB, which old objects never get. */
const YOUNG_HEAP = 192 * 2 ** 20;

/**
 * Proves in steps, between which others have their turn.
 *
 * @param own the node's addresses; sides may add more. @param enough how many differing classes end the search. @default no limit
 * @yields how many classes and Services were examined
 */
export function* proving(
  family: IpFamily,
  own: readonly IpAddress[],
  sides: readonly [Side, Side],
  enough = Number.POSITIVE_INFINITY,
): Generator<{ readonly classes: number; readonly services: number }, Proof, void> {
  const addresses = new Set([...own, ...sides.flatMap((side) => side.addresses ?? [])]);
  const roots = rootClasses(
    family,
    [...addresses],
    sides.some(({ hasSocketStage }) => hasSocketStage === true),
  );
  const isBySlots = sides.some(({ hasSlots }) => hasSlots === true);
  const node = sides[1].proxyPart && withoutErrors(sides[1].fates);
  // Before any other question: there are as many classes of these packets as devices, and no more.
  const first: Subject<Fate> = {
    fateOf(packet, asked) {
      for (const { enter } of sides) enter?.(packet, asked);
      return sides[0].fates.fateOf(packet, asked);
    },
  };
  const parts = [first, sides[1].proxyPart ?? sides[1].fates, ...(node === undefined ? [] : [node])];
  // One packet may meet so many rules that memory is used up before the next.
  const subjects = parts.map((subject) => checked(subject, () => requireMemory(classes, services.size)));
  const byOthers = new Map<string, OtherFate>();
  let ofOthers = 0;
  const start = performance.now();
  const examples = new Map<string, Counterexample>();
  const services = new Set<string>();
  const gaps = new Map<string, Unproved>();
  let [classes, differing, unproved] = [0, 0, 0];
  const doubts = sides.flatMap((side) => side.doubts ?? []);
  let [unprovable] = doubts;
  try {
    for (const { packets, example, fates: found, unproved: reason } of classesOf(family, roots, subjects)) {
      const [packet, fates] = told(subjects, packets, example, found, isBySlots);
      classes += 1;
      const because = reason ?? (isOfUnknownRange(sides[1], packet, fates) ? RANGE_NOT_GIVEN : undefined);
      if (because !== undefined) {
        unproved += 1;
        if (gaps.size < EXAMPLES && !gaps.has(because)) gaps.set(because, { because, packet });
      }
      for (const side of sides) services.add(side.serviceOf?.(packet) ?? "");
      if (classes % MEMORY_CHECK === 0) requireMemory(classes, services.size);
      yield { classes, services: services.size };
      const [first, second, whole] = fates;
      if (second !== undefined && whole !== undefined && !isSameFate(second, whole, isBySlots)) {
        ofOthers += 1;
        const kind = [...whole.keys()].sort().join("\n");
        if (byOthers.size < EXAMPLES && !byOthers.has(kind))
          byOthers.set(kind, { packet, fate: whole, by: sides[1].whoDecides?.(packet) });
      }
      if (first === undefined || second === undefined || isSameFate(first, second, isBySlots)) continue;
      if (because !== undefined) continue;
      differing += 1;
      const kind = `${fateText(first)}\n${fateText(second)}`;
      if (examples.size < EXAMPLES && !examples.has(kind)) examples.set(kind, { packet, fates: [first, second] });
      if (differing >= enough) break;
    }
  } catch (error) {
    if (!(error instanceof OutOfMemoryError)) throw error;
    unprovable = error.message;
  }
  const seconds = (performance.now() - start) / 1_000;
  // The shortest description comes first.
  const smallest = [...examples].sort(([one], [other]) => one.length - other.length).map(([, example]) => example);
  unprovable ??= gaps.keys().next().value;
  const others = { classes: ofOthers, examples: [...byOthers.values()] };
  return {
    classes,
    seconds,
    differing,
    examples: smallest,
    unprovable,
    doubts,
    unproved,
    gaps: [...gaps.values()],
    others,
  };
}

/** Why a packet that the proxy drops as one to an unused cluster IP is not proved. */
export const RANGE_NOT_GIVEN =
  "no ServiceCIDR is among the objects (kubectl get servicecidrs), so the unused cluster IPs are not known";

/**
 * The packet of a class that tells the sides apart, with its fates. A fate says the packet's own port where a rule keeps it, and the
 * same where a rule names just that one: then another packet is asked.
 */
function told(
  subjects: readonly Subject<Fate>[],
  packets: PacketClass,
  example: Packet,
  fates: readonly Fate[],
  isBySlots: boolean,
): readonly [Packet, readonly Fate[]] {
  const [one, other] = fates;
  const isOwn = (way: string) => way.includes(`:${example.destinationPort}`);
  if (one === undefined || other === undefined || !isSameFate(one, other, isBySlots) || ![...one.keys()].some(isOwn))
    return [example, fates];
  const second = toAnotherPort(packets, example);
  if (second === undefined) return [example, fates];
  const again = subjects.map((subject) => subject.fateOf(second, () => {}));
  return isSameFate(again[0] ?? one, again[1] ?? other, isBySlots) ? [example, fates] : [second, again];
}

/** Whether the proxy drops the packet as one to an unused cluster IP, and the objects do not say which these are. */
function isOfUnknownRange({ proxyPart, whoDecides }: Side, packet: Packet, [meant, found]: readonly Fate[]): boolean {
  if (meant?.has(RANGE_UNKNOWN) !== true || found?.get(DROPPED) !== 1) return false;
  return isInProxyTable(whoDecides?.(packet, proxyPart !== undefined));
}

/** What is not known is a fate, too. */
function withoutErrors(subject: Subject<Fate>): Subject<Fate> {
  return {
    fateOf(packet, asked) {
      try {
        return subject.fateOf(packet, asked);
      } catch (error) {
        if (error instanceof UnprovableError) return new Map([[`not known: ${error.message}`, 1]]);
        throw error;
      }
    },
  };
}

class OutOfMemoryError extends Error {
  override readonly name = "OutOfMemoryError";
}

function checked(subject: Subject<Fate>, check: () => void): Subject<Fate> {
  return {
    fateOf(packet, asked) {
      let count = 0;
      return subject.fateOf(packet, (question, now, chain) => {
        count += 1;
        if (count % COMPARISONS_CHECK === 0) check();
        asked(question, now, chain);
      });
    },
  };
}

/** @throws OutOfMemoryError if the heap is nearly full: from there on V8 does little but collect garbage. */
function requireMemory(classes: number, services: number): void {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  if (used < USABLE_HEAP * Math.max(limit - YOUNG_HEAP, limit / 2)) return;
  throw new OutOfMemoryError(
    `it needs more memory than ${Math.round(limit / 2 ** 20)} MB: it came through ${classes} classes of packets${services > 1 ? `, to ${services - 1} Services` : ""}`,
  );
}

const PROTOCOLS = ["tcp", "udp", "sctp", "icmp", "47"];
const INTERFACES = ["eth0", "eth1", "ens1"];

/**
 * Packets that processes of the node send, from its addresses; and packets that come in by an interface, from all other addresses:
 * routing drops packets from outside whose source is an address of the node (RFC 1812 §5.3.8) or of no machine at all.
 *
 * @param hasSocketStage whether it matters that a client's socket is on this node: then local pods are a root class of their own.
 */
export function rootClasses(family: IpFamily, own: readonly IpAddress[], hasSocketStage = false): RootClass[] {
  const bits = family === "IPv4" ? 32 : 128;
  const special = SPECIAL_RANGES.flatMap(([prefix]) => prefixPatterns(prefix, family));
  const addresses = own.map((value): Pattern => ({ kind: "exact", value }));
  const rest = {
    sourcePort: PORTS,
    destination: addressDomain(bits, []),
    destinationPort: PORTS,
    udpLength: UDP_LENGTHS,
    protocol: new Names({ kind: "beginning", text: "" }, [], PROTOCOLS),
  };
  const none: Pattern & { kind: "exact" } = { kind: "exact", value: "" };
  const outside: PacketClass = {
    ...rest,
    source: addressDomain(bits, [...special, ...addresses]),
    inInterface: new Names({ kind: "beginning", text: "" }, [none], INTERFACES),
    bridgePort: new Names({ kind: "beginning", text: "" }, [], ["", "veth0"]),
  };
  const roots: RootClass[] = [{ packets: outside, origin: "elsewhere" }];
  if (hasSocketStage) roots.push({ packets: outside, origin: "socket" });
  if (addresses.length > 0) {
    const source = onlyAddresses(bits, addresses);
    roots.push({
      packets: { ...rest, source, inInterface: new Names(none, [], []), bridgePort: new Names(none, [], []) },
      origin: "socket",
    });
  }
  return roots;
}
