/** Whether two things do the same with every packet: of one family, on one node. */
import { getHeapStatistics } from "node:v8";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { prefixPatterns, SPECIAL_RANGES } from "../trace/facts.ts";
import type { Packet } from "../trace/packet.ts";
import type { Question } from "../trace/question.ts";
import type { Pattern } from "../trace/value.ts";
import { classesOf, type PacketClass, type RootClass, type Subject, UnprovableError } from "./classes.ts";
import { addressDomain, Names, onlyAddresses, PORTS } from "./domain.ts";
import { type Fate, fateText, isSameFate } from "./fate.ts";

/** One of the two, with words for people. */
export interface Side {
  readonly name: string;
  readonly fates: Subject<Fate>;
  /** Addresses that are the node's because the rules need them to be. @default none */
  readonly addresses?: readonly IpAddress[];
  /** What is sent to sockets that only rules are to lead to. @default what sockets there are is not known */
  readonly ownSockets?: readonly Question[];
  /** Whether many endpoints need have nearly equal shares only. @default false */
  readonly hasSlots?: boolean;
  /** Whether something is decided before there is a packet. @default false */
  readonly hasSocketStage?: boolean;
  /** The Service that is asked for, where the side knows Services. */
  serviceOf?(packet: Packet): string | undefined;
  /** Why that becomes of the packet: rules, or what a Service says. */
  why(packet: Packet): string;
}

export interface Counterexample {
  readonly packet: Packet;
  /** What the two do with it. */
  readonly fates: readonly [Fate, Fate];
}

export interface Proof {
  /** How many classes all packets fall into. */
  readonly classes: number;
  readonly seconds: number;
  /** How many of them the two treat differently. */
  readonly differing: number;
  /** A packet for each kind of difference, the first {@link EXAMPLES} kinds. */
  readonly examples: readonly Counterexample[];
  /** Why nothing is proved: a rule that is not understood decides. */
  readonly unprovable: string | undefined;
}

const EXAMPLES = 5;
/** After so many classes it is seen whether there is memory for more. */
const MEMORY_CHECK = 100;
/** The part of the heap that may be used. */
const USABLE_HEAP = 0.85;
/** What V8 counts to the limit for young objects, unless told otherwise: three times 64 MB that old ones never get. */
const YOUNG_HEAP = 192 * 2 ** 20;

/** @param own the addresses of the node, but for those that a side brings. @param enough differing classes to stop at. @default none */
export function prove(
  family: IpFamily,
  own: readonly IpAddress[],
  sides: readonly [Side, Side],
  enough = Number.POSITIVE_INFINITY,
): Proof {
  const addresses = new Set([...own, ...sides.flatMap((side) => side.addresses ?? [])]);
  const roots = rootClasses(
    family,
    [...addresses],
    sides.some(({ hasSocketStage }) => hasSocketStage === true),
  );
  const isBySlots = sides.some(({ hasSlots }) => hasSlots === true);
  const subjects = sides.map(({ fates }) => fates);
  const start = performance.now();
  const examples = new Map<string, Counterexample>();
  const services = new Set<string>();
  let [classes, differing] = [0, 0];
  let unprovable: string | undefined;
  try {
    for (const { example: packet, fates } of classesOf(family, roots, subjects)) {
      classes += 1;
      for (const side of sides) services.add(side.serviceOf?.(packet) ?? "");
      if (classes % MEMORY_CHECK === 0) requireMemory(classes, services.size);
      const [first, second] = fates;
      if (first === undefined || second === undefined || isSameFate(first, second, isBySlots)) continue;
      differing += 1;
      const kind = `${fateText(first)}\n${fateText(second)}`;
      if (examples.size < EXAMPLES && !examples.has(kind)) examples.set(kind, { packet, fates: [first, second] });
      if (differing >= enough) break;
    }
  } catch (error) {
    if (!(error instanceof UnprovableError)) throw error;
    unprovable = error.message;
  }
  const seconds = (performance.now() - start) / 1_000;
  // What is said of the smallest comes first.
  const smallest = [...examples].sort(([one], [other]) => one.length - other.length).map(([, example]) => example);
  return { classes, seconds, differing, examples: smallest, unprovable };
}

/** @throws UnprovableError near the end of the heap, where a program does nothing but look for more. */
function requireMemory(classes: number, services: number): void {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  if (used < USABLE_HEAP * Math.max(limit - YOUNG_HEAP, limit / 2)) return;
  throw new UnprovableError(
    `there is too little memory (${Math.round(limit / 2 ** 20)} MB): ${classes} classes of packets${services > 1 ? `, to ${services - 1} Services,` : ""} were looked at`,
  );
}

const PROTOCOLS = ["tcp", "udp", "sctp", "icmp", "47"];
const INTERFACES = ["eth0", "eth1", "ens1"];

/**
 * What processes of the node send, from one of its addresses, and what comes in by an interface, from any other: routing drops
 * packets that come from outside with an address of the node (RFC 1812 §5.3.8), and those of no machine at all.
 *
 * @param hasSocketStage whether it makes a difference that a client has its socket on this node: then its pods are a root of their own.
 */
export function rootClasses(family: IpFamily, own: readonly IpAddress[], hasSocketStage = false): RootClass[] {
  const bits = family === "IPv4" ? 32 : 128;
  const special = SPECIAL_RANGES.flatMap(([prefix]) => prefixPatterns(prefix, family));
  const addresses = own.map((value): Pattern => ({ kind: "exact", value }));
  const rest = {
    sourcePort: PORTS,
    destination: addressDomain(bits, []),
    destinationPort: PORTS,
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
