/** What a walk gives: a line of events that forks where chance, or something unknown, decides. */
import type { Packet } from "../packet.ts";
import type { WalkObserver } from "./observer.ts";
import type { BaseChain, Entry, Rule, Stage } from "./program.ts";

/** What becomes of a packet. */
export type Fate =
  /** It reaches a process of the node. */
  | { readonly kind: "delivered" }
  /** It leaves the node. `isAnswerLost`: the endpoint answers past this node, so that the client does not know the answer. */
  | { readonly kind: "sent"; readonly isAnswerLost?: true }
  /** It is for an address of a Service, and nothing leads it to an endpoint: it leaves by the node's routes. */
  | { readonly kind: "not-led"; readonly because: string }
  | { readonly kind: "dropped"; readonly by: string }
  | { readonly kind: "refused"; readonly answer: string; readonly by: string }
  /** Something that is not understood, or not known, decides. */
  | { readonly kind: "uncertain"; readonly because: string };

export type TraceEvent =
  /** `virtual switch` where there are no hooks: that of Windows. */
  | { readonly kind: "stage"; readonly stage: Stage | "virtual switch"; readonly packet: Packet }
  | { readonly kind: "base-chain"; readonly chain: BaseChain }
  /** A nat chain that is not asked, and why. */
  | { readonly kind: "not-asked"; readonly chain: BaseChain; readonly because: string }
  /** Rules that cannot match, which were not looked at one by one. */
  | { readonly kind: "skipped"; readonly chain: string; readonly count: number }
  /** A rule whose conditions do not all hold: the first that does not, and what the packet has there. */
  | {
      readonly kind: "no-match";
      readonly chain: string;
      /** -1 where rules have no places. */
      readonly index: number;
      readonly rule: Rule;
      readonly condition: string;
      readonly observed: string | undefined;
    }
  | {
      readonly kind: "match";
      readonly chain: string;
      /** -1 where rules have no places. */
      readonly index: number;
      readonly rule: Rule;
      readonly said: string;
    }
  | { readonly kind: "policy"; readonly chain: BaseChain }
  /** Something to know about what was said before. */
  | { readonly kind: "remark"; readonly text: string }
  /** Routing decides where the packet goes next. */
  | { readonly kind: "routed"; readonly to: Stage; readonly because: string };

export interface Branch {
  /** Of a random choice; undefined where it is not known. */
  readonly odds: number | undefined;
  readonly label: string;
  readonly node: TraceNode;
}

export type TraceEnd =
  | { readonly kind: "end"; readonly fate: Fate; readonly packet: Packet; readonly entries: readonly Entry[] }
  | { readonly kind: "fork"; readonly question: string | undefined; readonly branches: readonly Branch[] };

export interface TraceNode {
  readonly events: readonly TraceEvent[];
  readonly end: TraceEnd;
}

/** One way that a packet may go. */
export interface Outcome {
  /** Of the random choices on the way. */
  readonly odds: number;
  /** What is taken for granted on the way, of what is not known. */
  readonly assumptions: readonly string[];
  readonly fate: Fate;
  readonly packet: Packet;
  readonly entries: readonly Entry[];
}

/** All ways through a tree, in its order. Pure. */
export function* outcomesOf(root: TraceNode): Generator<Outcome> {
  interface Way {
    readonly node: TraceNode;
    readonly odds: number;
    readonly assumptions: readonly string[];
  }
  const open: Way[] = [{ node: root, odds: 1, assumptions: [] }];
  for (let way = open.pop(); way !== undefined; way = open.pop()) {
    const { end } = way.node;
    if (end.kind === "end") {
      const { fate, packet, entries } = end;
      yield { odds: way.odds, assumptions: way.assumptions, fate, packet, entries };
      continue;
    }
    for (const { odds, label, node } of end.branches.toReversed()) {
      const assumptions = odds === undefined ? [...way.assumptions, label] : way.assumptions;
      open.push({ node, odds: way.odds * (odds ?? 1), assumptions });
    }
  }
}

/** `KUBE-SERVICES 7`; the chain alone where rules have no places. */
export function ruleName({ chain, index }: { readonly chain: string; readonly index: number }): string {
  return index < 0 ? chain : `${chain} ${index + 1}`;
}

export interface WalkOptions {
  /** What is kept of the way: nothing but its end, rules that match, or every rule. @default "matches" */
  readonly record?: "ends" | "matches" | "all";
  /** Takes one branch of each random choice: gives a number from 0 to 1, without 1. @default all branches */
  readonly random?: () => number;
  /** Questions that need not be asked, with their answers. @default none */
  readonly answers?: ReadonlyMap<string, boolean>;
  /** Told of all that the way depends on, before it is looked at. */
  readonly observer?: WalkObserver;
  /** Forks beyond this many ends are refused. @default 100,000 */
  readonly maxEnds?: number;
}

/** There are too many ways to go through. */
export class TooManyWaysError extends Error {
  override readonly name = "TooManyWaysError";
  constructor(limit: number) {
    super(
      `more than ${limit} ways through the rules: say more of the packet and the node, or take one way with a seed`,
    );
  }
}
