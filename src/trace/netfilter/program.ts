/**
 * Rules in a form that can be walked: those of nftables, iptables and ipvs, of any program, are compiled to it. The kernel calls
 * the base chains of a hook in the order of their priorities; where several programs have one, all of them.
 */
import type { Packet } from "../packet.ts";
import type { Question } from "../question.ts";

export const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;
/** A hook of netfilter. */
export type Hook = (typeof HOOKS)[number];
/** `socket` comes before all hooks, for what this node asks for itself: programs may choose where a connection goes. */
export type Stage = Hook | "socket";

/** Where control goes after a rule. */
export type Verdict =
  /** Ends this base chain; the next one of the hook follows. */
  | { readonly kind: "accept" }
  | { readonly kind: "drop" }
  /** `answer` is what the sender gets, as `tcp reset`. @default that there is no such port, in the words of the packet's family */
  | { readonly kind: "reject"; readonly answer?: string | undefined }
  | { readonly kind: "return" }
  | { readonly kind: "jump" | "goto"; readonly chain: string }
  /** IPVS sends it on: the rest of this hook is left out. */
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
  /** One of these, at random. Odds add up to one. */
  | { readonly kind: "choice"; readonly options: readonly { readonly odds: number; readonly result: StepResult }[] }
  /** It depends on something that is not known: `yes` where the question is answered with yes. */
  | { readonly kind: "unknown"; readonly question: string; readonly yes: StepResult; readonly no: StepResult }
  /** What happens from here cannot be said. */
  | { readonly kind: "lost"; readonly because: string };

/** An entry that a packet makes in a set, for those that follow. */
export interface Entry {
  readonly set: string;
  readonly key: string;
  /** Of maps: the parts of the value. */
  readonly data?: readonly (string | number)[];
}

/** A condition or an action. */
export interface Step {
  /** As its tool prints it. */
  readonly text: string;
  run(packet: Packet): StepResult;
  /** All that the result depends on, of what a sender chooses. Undefined: on something else as well. */
  readonly asks?: readonly Question[] | undefined;
  /** Whether it does something: then it says so itself. @default false */
  readonly isAction?: boolean;
  /** What the packet has where the condition asks: `ip daddr is 10.0.0.1`. */
  observed?(packet: Packet): string;
}

export interface Rule {
  /** As its tool prints it. */
  readonly text: string;
  readonly comment?: string | undefined;
  readonly steps: readonly Step[];
}

export interface Chain {
  readonly name: string;
  readonly length: number;
  /** Whether rules have places that people know them by; entries of a table have none. @default true */
  readonly isNumbered?: boolean;
  /** The rule at an index, compiled when it is asked for. */
  ruleAt(index: number): Rule | undefined;
  /** What {@link firstCandidate} looks at. @default nothing */
  readonly asks?: (() => readonly Question[]) | undefined;
  /** The first index, from this one on, whose rule can match the packet; the length when there is none. @default index */
  firstCandidate?(index: number, packet: Packet): number;
}

/** A chain that the kernel calls. */
export interface BaseChain {
  /** Whose it is, as people name it: `ip kube-proxy`, `iptables -t nat`. */
  readonly table: string;
  readonly type: "filter" | "nat";
  readonly stage: Stage;
  readonly priority: number;
  readonly policy: "accept" | "drop";
  readonly chain: Chain;
  /** Chains of the same table, where jumps lead. */
  chainNamed(name: string): Chain | undefined;
}

/** All base chains of a node, for one family, in the kernel's order within each stage. */
export type Program = Readonly<Record<Stage, readonly BaseChain[]>>;

/** Puts base chains into the order in which the kernel calls them; those of one priority stay as given. Pure. */
export function programOf(chains: readonly BaseChain[]): Program {
  const at = (stage: Stage) => chains.filter((chain) => chain.stage === stage).sort((a, b) => a.priority - b.priority);
  return {
    socket: at("socket"),
    prerouting: at("prerouting"),
    input: at("input"),
    forward: at("forward"),
    output: at("output"),
    postrouting: at("postrouting"),
  };
}

export const GO_ON: StepResult = { kind: "go-on" };
export const NO_MATCH: StepResult = { kind: "no-match" };

/** What the sender of a packet gets where a rule refuses it and says no more. */
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

/** The place of a rule in its chain, -1 where places mean nothing. */
export function placeIn(chain: Chain, index: number): number {
  return chain.isNumbered === false ? -1 : index;
}
