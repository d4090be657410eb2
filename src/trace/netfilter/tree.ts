/** The result of a walk: a sequence of events that forks where chance, or an unknown fact, decides. */
import type { Packet } from "../packet.ts";
import type { WalkObserver } from "./observer.ts";
import type { BaseChain, Entry, Rule, Stage } from "./program.ts";

/** What becomes of a packet. */
export type Fate =
  /** It reaches a process of the node. */
  | { readonly kind: "delivered" }
  /** It leaves the node. `isAnswerLost`: the endpoint's answer bypasses this node, and the client does not know it. */
  | { readonly kind: "sent"; readonly isAnswerLost?: true }
  /** It is for the address of a Service, but no rule sends it to an endpoint: it leaves by the node's routes. */
  | { readonly kind: "not-led"; readonly because: string }
  | { readonly kind: "dropped"; readonly by: string }
  | { readonly kind: "refused"; readonly answer: string; readonly by: string }
  /** It depends on something that is not understood or not known. */
  | { readonly kind: "uncertain"; readonly because: string; readonly by?: string };

/** What a match says that has no action. */
export const IDLE = "matches, and does nothing";

/** Why the fate of a client that session affinity remembers is uncertain. */
export const EARLIER_CONNECTIONS = "it goes to the endpoint of the client's earlier connections";

export type TraceEvent =
  /** `virtual switch` on Windows, which has no hooks. */
  | { readonly kind: "stage"; readonly stage: Stage | "virtual switch"; readonly packet: Packet }
  | { readonly kind: "base-chain"; readonly chain: BaseChain }
  /** A nat chain that the kernel does not run, and why. */
  | { readonly kind: "not-asked"; readonly chain: BaseChain; readonly because: string }
  /** Rules that cannot match and were skipped together. */
  | { readonly kind: "skipped"; readonly chain: string; readonly count: number }
  /** A rule that does not match: its first condition that fails, and the packet's value for it. */
  | {
      readonly kind: "no-match";
      readonly chain: string;
      /** -1 if rules have no numbers. */
      readonly index: number;
      readonly rule: Rule;
      readonly condition: string;
      readonly observed: string | undefined;
    }
  | {
      readonly kind: "match";
      readonly chain: string;
      /** -1 if rules have no numbers. */
      readonly index: number;
      readonly rule: Rule;
      readonly said: string;
    }
  | { readonly kind: "policy"; readonly chain: BaseChain }
  /** A remark about the event before. */
  | { readonly kind: "remark"; readonly text: string }
  /** Routing decides where the packet goes next. */
  | { readonly kind: "routed"; readonly to: Stage; readonly because: string };

export interface Branch {
  /** The odds of a random choice; undefined if an unknown fact decides. */
  readonly odds: number | undefined;
  readonly label: string;
  readonly node: TraceNode;
}

export type TraceEnd =
  | {
      readonly kind: "end";
      readonly fate: Fate;
      readonly packet: Packet;
      readonly entries: readonly Entry[];
      readonly hashed?: string;
    }
  | {
      readonly kind: "fork";
      readonly question: string | undefined;
      readonly branches: readonly Branch[];
      /** The rule that asks. */
      readonly by?: string;
    };

export interface TraceNode {
  readonly events: readonly TraceEvent[];
  readonly end: TraceEnd;
}

/** One way that a packet may go. */
export interface Outcome {
  /** The product of all random choices on the way. */
  readonly odds: number;
  /** The answers that this way assumes to unknown facts. */
  readonly assumptions: readonly string[];
  readonly fate: Fate;
  readonly packet: Packet;
  readonly entries: readonly Entry[];
  /** Which clients take this way, where their hash decides: the same text for the same clients. @default chance decides */
  readonly hashed?: string;
}

/** One way, with what was recorded on it. */
export interface RecordedOutcome extends Outcome {
  readonly events: readonly TraceEvent[];
}

const NONE: readonly string[] = [];

/** All ways through a tree, in its order. @param hasEvents whether each has what was recorded on it. @default false */
export function* outcomesOf(root: TraceNode, hasEvents = false): Generator<RecordedOutcome> {
  const open = [{ node: root, events: hasEvents ? root.events : [], odds: 1, assumptions: NONE }];
  for (let way = open.pop(); way !== undefined; way = open.pop()) {
    const { odds: share, assumptions, events } = way;
    const { end } = way.node;
    if (end.kind === "end") {
      const { kind: _, ...outcome } = end;
      yield { odds: share, assumptions, events, ...outcome };
      continue;
    }
    for (const { odds, label, node: next } of end.branches.toReversed()) {
      open.push({
        node: next,
        events: hasEvents ? [...events, ...next.events] : events,
        odds: share * (odds ?? 1),
        assumptions: odds === undefined ? [...assumptions, label] : assumptions,
      });
    }
  }
}

/** Such as `KUBE-SERVICES 7`; the chain alone if rules have no numbers. */
export function ruleName({ chain, index }: { readonly chain: string; readonly index: number }): string {
  return index < 0 ? chain : `${chain} ${index + 1}`;
}

export interface WalkOptions {
  /** What to record: only ends, rules that match, or every rule. @default "matches" */
  readonly record?: "ends" | "matches" | "all";
  /** Returns a number from 0 to below 1, which picks one branch of each random choice. @default all branches */
  readonly random?: () => number;
  /** Answers to questions that the walk need not fork on. @default none */
  readonly answers?: ReadonlyMap<string, boolean>;
  /** Gets everything that the path depends on, before it is used. */
  readonly observer?: WalkObserver;
  /** Whether the kernel was seen to call chains in the order that the program has. @default only as far as the order is known */
  readonly isInOrder?: boolean;
  /** What to leave out: a chain, a rule of a base chain, or a base chain's policy. @default nothing */
  readonly isLeftOut?: (table: string, chain: string, part?: Rule | "policy") => boolean;
  /** The walk throws if it forks into more ends than this. @default 100,000 */
  readonly maxEnds?: number;
}

/** The walk has more ends than allowed. */
export class TooManyWaysError extends Error {
  override readonly name = "TooManyWaysError";
  constructor(limit: number) {
    super(
      `more than ${limit} ways through the rules: describe the packet and the node in more detail, or follow one way with a seed`,
    );
  }
}
