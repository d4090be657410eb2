/**
 * Rules in a form that a walk can follow: rules of nftables, iptables and ipvs, from any program, are compiled to it. The kernel
 * calls all base chains of a hook in the order of their priorities, whichever programs made them.
 */
import type { Packet } from "../packet.ts";
import type { Question } from "../question.ts";

export const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;
export type Hook = (typeof HOOKS)[number];
/** `socket` precedes all hooks, for connections of this node's sockets: BPF programs may choose their destination. */
export type Stage = Hook | "socket";

/** Where control goes after a rule. */
export type Verdict =
  /** Ends this base chain; the next one of the hook follows. */
  | { readonly kind: "accept" }
  | { readonly kind: "drop" }
  /** `answer` is what the sender gets, such as `tcp reset`. @default port-unreachable, in ICMP of the packet's family */
  | { readonly kind: "reject"; readonly answer?: string | undefined }
  | { readonly kind: "return" }
  | { readonly kind: "jump" | "goto"; readonly chain: string }
  /** IPVS forwards it: the rest of this hook is skipped. */
  | { readonly kind: "forward-to"; readonly stage: Stage };

/** What one step of a rule does to a packet. */
export type StepResult =
  /** The rule goes on, with the packet if it was changed. */
  | { readonly kind: "go-on"; readonly packet?: Packet; readonly said?: string; readonly entry?: Entry }
  /** The rule ends here: a condition does not hold. */
  | { readonly kind: "no-match" }
  | {
      readonly kind: "verdict";
      readonly verdict: Verdict;
      readonly packet?: Packet;
      readonly said?: string;
      readonly entry?: Entry;
    }
  /** One of these, at random or by a hash of the client. The odds add up to one. */
  | {
      readonly kind: "choice";
      readonly options: readonly Option[];
      /** The index of the one that the packet's hash takes. @default not known, or at random */
      readonly taken?: number | undefined;
    }
  /** It depends on something unknown: `yes` and `no` are the results for the two answers to the question. */
  | { readonly kind: "unknown"; readonly question: string; readonly yes: StepResult; readonly no: StepResult }
  /** What happens next cannot be told. */
  | { readonly kind: "lost"; readonly because: string };

export interface Option {
  readonly odds: number;
  readonly result: StepResult;
  /** What a hash must be for it, in words that are the same in all layouts. @default it is taken at random */
  readonly by?: string | undefined;
}

/** An entry that a packet adds to a set, for later packets. */
export interface Entry {
  /** Whose set it is, as `family name`. @default no table's */
  readonly table?: string;
  readonly set: string;
  readonly key: string;
  /** The parts of the value, for maps. */
  readonly data?: readonly (string | number)[];
  /** Whether the packet takes it out. @default false */
  readonly isGone?: true;
}

/** A condition or an action. */
export interface Step {
  /** As its tool prints it. */
  readonly text: string;
  run(packet: Packet): StepResult;
  /** Everything in the packet, as sent, that the result depends on. Undefined: it depends on something else too. */
  readonly asks?: readonly Question[] | undefined;
  /** Whether it is an action, which reports itself in `said`. @default false */
  readonly isAction?: boolean;
  /** The packet's value for the condition: `ip daddr is 10.0.0.1`. */
  observed?(packet: Packet): string;
  /** Whether its result depends on what a packet wrote before. @default it does not */
  reads?(entry: Entry): boolean;
}

/** What the step does to a packet. @param entries what the packet itself has written so far. */
export function resultOf(step: Step, packet: Packet, entries: readonly Entry[]): StepResult {
  const own = step.reads && entries.find((entry) => step.reads?.(entry));
  if (own === undefined) return step.run(packet);
  return lost(`"${step.text}" depends on what the packet itself changed in ${own.set}`);
}

export interface Rule {
  /** As its tool prints it. */
  readonly text: string;
  readonly comment?: string | undefined;
  readonly steps: readonly Step[];
  /** Whether nothing depends on it: it only compares, counts or logs. @default false */
  readonly isIdle?: boolean;
}

export interface Chain {
  readonly name: string;
  readonly length: number;
  /** Whether rules have numbers that people know them by; entries of a table have none. @default true */
  readonly isNumbered?: boolean;
  /** The rule at an index, compiled on first use. */
  ruleAt(index: number): Rule | undefined;
  /** What {@link firstCandidate} depends on. @default nothing */
  readonly asks?: ((index: number) => readonly Question[]) | undefined;
  /** The first index from this one on whose rule can match the packet; the chain's length if there is none. @default index */
  firstCandidate?(index: number, packet: Packet): number;
}

/** A chain that the kernel itself calls, at a hook. */
export interface BaseChain {
  /** Its table, as people name it: `ip kube-proxy`, `iptables -t nat`. */
  readonly table: string;
  readonly type: "filter" | "nat";
  readonly stage: Stage;
  readonly priority: number;
  readonly policy: "accept" | "drop";
  readonly chain: Chain;
  /** The kernel's number of it, which grows within a table. @default not known: later ones are newer */
  readonly handle?: number | undefined;
  /** Its place among what the kernel says that it calls; nat chains may have one together. @default not known */
  readonly place?: number | undefined;
  /** When it was registered, at the earliest and at the latest, by a count of what was seen. @default not known */
  readonly registered?: readonly [earliest: number, latest: number] | undefined;
  /** What is not known, in words, and must be so for the kernel to call it. @default nothing */
  readonly onlyIf?: string | undefined;
  /** Whether a packet of the node that it marks is routed again. @default false */
  readonly reroutes?: boolean;
  /** A chain of the same table, the target of a jump. */
  chainNamed(name: string): Chain | undefined;
}

/** All base chains of a node, for one family, in the kernel's order within each stage. */
export type Program = Readonly<Record<Stage, readonly BaseChain[]>>;

export const GO_ON: StepResult = { kind: "go-on" };
export const NO_MATCH: StepResult = { kind: "no-match" };
/** What happens next cannot be told. */
export const lost = (because: string): StepResult => ({ kind: "lost", because });

/** The result of a condition that depends on something unknown. */
export function asked(question: string, negated = false): StepResult {
  return negated
    ? { kind: "unknown", question, yes: NO_MATCH, no: GO_ON }
    : { kind: "unknown", question, yes: GO_ON, no: NO_MATCH };
}

/** The result of a rule that marks a connection, if there is none. */
export const NO_CONNECTION: StepResult = { kind: "go-on", said: "the packet has no connection" };

/** What the sender gets from a rule that rejects without saying how. */
export function usualRefusal({ family }: Pick<Packet, "family">): string {
  return `${family === "IPv4" ? "icmp" : "icmpv6"} port-unreachable`;
}

export function verdictText(verdict: Verdict): string {
  switch (verdict.kind) {
    case "jump":
    case "goto":
      return `${verdict.kind} ${verdict.chain}`;
    case "reject":
      return verdict.answer === undefined ? "reject" : `reject with ${verdict.answer}`;
    case "forward-to":
      return `on to ${verdict.stage}`;
    default:
      return verdict.kind;
  }
}

/** The index of a rule in its chain; -1 if rules have no numbers. */
export function placeIn(chain: Chain, index: number): number {
  return chain.isNumbered === false ? -1 : index;
}

/** NF_IP_PRI_CONNTRACK (include/uapi/linux/netfilter_ipv4.h). */
const TRACKING_PRIORITY = -200;

/** Packets that come in again by loopback keep their connection, and a refusal is given one as it is made (nf_conntrack_attach). */
export function isAfterTracking({ stage, priority }: BaseChain, { inInterface, isRefusal }: Packet): boolean {
  const isFirst = stage === "output" || (stage === "prerouting" && inInterface !== "lo");
  return !isFirst || isRefusal || priority >= TRACKING_PRIORITY;
}
