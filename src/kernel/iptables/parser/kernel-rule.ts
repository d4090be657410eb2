/**
 * A rule as the kernel holds it, ours or not: what the text of the tools is parsed into (`rule-syntax.ts`), the
 * in-memory kernel stores and the tracer interprets. Wider than `rule.ts`, which is what our planners write.
 */

import type { Cidr, IpAddress } from "../../../net/ip.ts";
import { PROTOCOL_NAMES, type ProtocolName } from "../../../net/protocol.ts";

export interface AddressMatch {
  readonly cidr: Cidr;
  readonly negated: boolean;
}

export interface InterfaceMatch {
  /** Ends in `+` to match every interface with that prefix. */
  readonly name: string;
  readonly negated: boolean;
}

/** Protocols that rules of any author match. */
type RuleProtocol = ProtocolName | "icmp" | "ipv6-icmp";
export const RULE_PROTOCOLS: readonly RuleProtocol[] = [...PROTOCOL_NAMES, "icmp", "ipv6-icmp"];

export interface ProtocolMatch {
  readonly protocol: RuleProtocol;
  readonly negated: boolean;
}

/** Ports from `from` to `to`, both included. */
export interface PortRange {
  readonly from: number;
  readonly to: number;
  readonly negated: boolean;
}

/** Connection-tracking states in the order in which the tools print them. */
export const CONNTRACK_STATES = ["INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"] as const;
export type ConntrackState = (typeof CONNTRACK_STATES)[number];

/** Those that the match `state` knows, in the same order. */
export const STATES = ["INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED"] as const satisfies ConntrackState[];
type State = (typeof STATES)[number];

/** Route types in the order in which the tools print them. */
export const ADDRESS_TYPES = [
  "UNSPEC",
  "UNICAST",
  "LOCAL",
  "BROADCAST",
  "ANYCAST",
  "MULTICAST",
  "BLACKHOLE",
  "UNREACHABLE",
  "PROHIBIT",
  "THROW",
  "NAT",
  "XRESOLVE",
] as const;
type AddressType = (typeof ADDRESS_TYPES)[number];

export interface AddressTypes {
  readonly types: readonly AddressType[];
  readonly negated: boolean;
}

export interface PortsMatch<K extends "tcp" | "udp" | "sctp"> {
  readonly kind: K;
  readonly source: PortRange | undefined;
  readonly destination: PortRange | undefined;
}

/** The match extensions that are understood, by the name that follows `-m`. */
export interface MatchTypes {
  readonly comment: { readonly kind: "comment"; readonly text: string };
  readonly conntrack: {
    readonly kind: "conntrack";
    readonly states: readonly ConntrackState[];
    readonly negated: boolean;
  };
  /** The older spelling of conntrack's states; only {@link STATES}. */
  readonly state: { readonly kind: "state"; readonly states: readonly State[]; readonly negated: boolean };
  readonly addrtype: {
    readonly kind: "addrtype";
    readonly source: AddressTypes | undefined;
    readonly destination: AddressTypes | undefined;
  };
  readonly mark: { readonly kind: "mark"; readonly value: number; readonly mask: number; readonly negated: boolean };
  readonly statistic: {
    readonly kind: "statistic";
    /** Of 2³¹, as the kernel keeps it: 2³⁰ is one half. */
    readonly probability: number;
    readonly negated: boolean;
  };
  readonly recent: {
    readonly kind: "recent";
    readonly action: "set" | "rcheck" | "update" | "remove";
    readonly negated: boolean;
    readonly list: string;
    readonly seconds: number | undefined;
    readonly hitCount: number | undefined;
    /** Entries older than `seconds` are dropped on the way. */
    readonly reap: boolean;
    readonly mask: IpAddress;
    /**
     * Whether `mask` is the default because none was given. Prints the same, but is another rule for IPv4: the tools then
     * leave the unused bytes of the structure all ones, and `-D` compares them.
     */
    readonly hasDefaultMask: boolean;
    readonly side: "source" | "destination";
  };
  readonly nfacct: { readonly kind: "nfacct"; readonly counter: string };
  readonly set: {
    readonly kind: "set";
    readonly name: string;
    readonly directions: readonly ("src" | "dst")[];
    readonly negated: boolean;
  };
  /** Only `--physdev-is-in` is understood. */
  readonly physdev: { readonly kind: "physdev"; readonly isIn: boolean };
  /** Connections of one virtual server; negations are not understood. */
  readonly ipvs: {
    readonly kind: "ipvs";
    /** Of a protocol: 6, 17 or 132. */
    readonly protocolNumber: number | undefined;
    readonly address: IpAddress | undefined;
    readonly port: number | undefined;
  };
  readonly tcp: PortsMatch<"tcp">;
  readonly udp: PortsMatch<"udp">;
  readonly sctp: PortsMatch<"sctp">;
}

export type MatchKind = keyof MatchTypes;
/** A match of some kind; generic so that a table indexed by kind can be applied to it. */
export type KernelMatch<K extends MatchKind = MatchKind> = { [P in K]: MatchTypes[P] & { readonly kind: P } }[K];

/** Targets with a fixed name, by the word that follows `-j`. */
export interface TargetTypes {
  readonly ACCEPT: { readonly kind: "ACCEPT" };
  readonly DROP: { readonly kind: "DROP" };
  readonly RETURN: { readonly kind: "RETURN" };
  readonly REJECT: { readonly kind: "REJECT"; readonly with: string };
  /** The new mark is `(old & ~mask) ^ value`. */
  readonly MARK: { readonly kind: "MARK"; readonly value: number; readonly mask: number };
  readonly MASQUERADE: { readonly kind: "MASQUERADE"; readonly random: boolean; readonly randomFully: boolean };
  readonly REDIRECT: {
    readonly kind: "REDIRECT";
    /** Undefined keeps the packet's port. */
    readonly ports: { readonly from: number; readonly to: number } | undefined;
    readonly random: boolean;
  };
  readonly DNAT: {
    readonly kind: "DNAT";
    readonly address: IpAddress;
    /** Undefined keeps the packet's port. */
    readonly port: number | undefined;
    readonly random: boolean;
    readonly persistent: boolean;
  };
}

export type TargetKind = keyof TargetTypes;
/** A target with a fixed name; generic for the same reason. */
export type NamedTarget<K extends TargetKind = TargetKind> = { [P in K]: TargetTypes[P] & { readonly kind: P } }[K];

export type KernelTarget =
  | NamedTarget
  /** The rule only counts packets. */
  | { readonly kind: "none" }
  /** `-j`: comes back when the chain ends. */
  | { readonly kind: "jump"; readonly chain: string }
  /** `-g`: comes back to the caller of this chain. */
  | { readonly kind: "goto"; readonly chain: string };

export interface KernelRule {
  readonly source: AddressMatch | undefined;
  readonly destination: AddressMatch | undefined;
  readonly inInterface: InterfaceMatch | undefined;
  readonly outInterface: InterfaceMatch | undefined;
  readonly protocol: ProtocolMatch | undefined;
  /** In the order in which they are asked. */
  readonly matches: readonly KernelMatch[];
  readonly target: KernelTarget;
}
