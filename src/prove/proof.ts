/** Whether two things do the same with every packet: of one family, on one node. */
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { Packet } from "../trace/packet.ts";
import type { Question } from "../trace/question.ts";
import { classesOf, type RootClass, type Subject } from "./classes.ts";
import { type Fate, fateText, isSameFate } from "./fate.ts";
import { rootClasses } from "./roots.ts";
import { UnprovableError } from "./rule-fates.ts";

/** One of the two, with words for people. */
export interface Side {
  readonly name: string;
  readonly fates: Subject<Fate>;
  /** Addresses that are the node's because the rules need them to be. @default none */
  readonly addresses?: readonly IpAddress[];
  /** What is sent to sockets that only rules are to lead to. @default none */
  readonly ownSockets?: readonly Question[];
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

/** @param own the addresses of the node, but for those that a side brings. @param enough differing classes to stop at. @default none */
export function prove(
  family: IpFamily,
  own: readonly IpAddress[],
  [one, other]: readonly [Side, Side],
  enough?: number,
): Proof {
  const hasSocketStage = one.hasSocketStage === true || other.hasSocketStage === true;
  const addresses = new Set([...own, ...(one.addresses ?? []), ...(other.addresses ?? [])]);
  return proveIn(family, rootClasses(family, [...addresses], hasSocketStage), [one.fates, other.fates], enough);
}

/** @param roots what packets there are. */
export function proveIn(
  family: IpFamily,
  roots: readonly RootClass[],
  subjects: readonly [Subject<Fate>, Subject<Fate>],
  enough = Number.POSITIVE_INFINITY,
): Proof {
  const start = performance.now();
  const examples = new Map<string, Counterexample>();
  let [classes, differing] = [0, 0];
  let unprovable: string | undefined;
  try {
    for (const { example: packet, fates } of classesOf(family, roots, subjects)) {
      classes += 1;
      const [first, second] = fates;
      if (first === undefined || second === undefined || isSameFate(first, second)) continue;
      differing += 1;
      if (differing >= enough) break;
      const texts = [fateText(first), fateText(second)] as const;
      const kind = texts.join("\n");
      if (examples.size < EXAMPLES && !examples.has(kind)) examples.set(kind, { packet, fates: [first, second] });
    }
  } catch (error) {
    if (!(error instanceof UnprovableError)) throw error;
    unprovable = error.message;
  }
  const seconds = (performance.now() - start) / 1_000;
  return { classes, seconds, differing, examples: [...examples.values()], unprovable };
}
