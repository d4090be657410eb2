/** Whether two things do the same with every packet: of one family, on one node. */
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { Packet } from "../trace/packet.ts";
import { classesOf, type RootClass, type Subject } from "./classes.ts";
import { type Fate, fateText, isSameFate } from "./fate.ts";
import { rootClasses } from "./roots.ts";
import { UnprovableError } from "./rule-fates.ts";

/** One of the two, with words for people. */
export interface Side {
  readonly name: string;
  readonly fates: Subject<Fate>;
  /** Whether something is decided before there is a packet. @default false */
  readonly hasSocketStage?: boolean;
  /** Why that becomes of the packet: rules, or what a Service says. */
  why(packet: Packet): string;
}

export interface Counterexample {
  readonly packet: Packet;
  /** What the two do with it, in words. */
  readonly fates: readonly [string, string];
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

/** @param own all addresses of the node. */
export function prove(family: IpFamily, own: readonly IpAddress[], [one, other]: readonly [Side, Side]): Proof {
  const hasSocketStage = one.hasSocketStage === true || other.hasSocketStage === true;
  return proveIn(family, rootClasses(family, own, hasSocketStage), [one.fates, other.fates]);
}

/** @param roots what packets there are. */
export function proveIn(
  family: IpFamily,
  roots: readonly RootClass[],
  subjects: readonly [Subject<Fate>, Subject<Fate>],
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
      const texts = [fateText(first), fateText(second)] as const;
      const kind = texts.join("\n");
      if (examples.size < EXAMPLES && !examples.has(kind)) examples.set(kind, { packet, fates: texts });
    }
  } catch (error) {
    if (!(error instanceof UnprovableError)) throw error;
    unprovable = error.message;
  }
  const seconds = (performance.now() - start) / 1_000;
  return { classes, seconds, differing, examples: [...examples.values()], unprovable };
}
