/**
 * A rule of ours as data, built by the planners and formatted by `rule-text.ts`. Matches are in output order. Rules of
 * any author, as `iptables-save` prints them, are `KernelRule`s (`parser/rule-syntax.ts`).
 */

import type { Cidr, IpAddress } from "../../net/ip.ts";
import type { ProtocolName } from "../../net/protocol.ts";

declare const brand: unique symbol;

/** A chain name within the kernel's limit of 28 characters. */
export type ChainName = string & { readonly [brand]: "ChainName" };

/** One condition of a rule. A missing `negate` means not negated. */
export type RuleMatch =
  | { readonly kind: "comment"; readonly text: string }
  | { readonly kind: "protocol"; readonly protocol: ProtocolName }
  /** The protocol alone, without loading the match for its ports. */
  | { readonly kind: "bare-protocol"; readonly protocol: ProtocolName }
  | { readonly kind: "destination-port"; readonly port: number }
  | { readonly kind: "source"; readonly address: Cidr | IpAddress; readonly negate?: boolean }
  | { readonly kind: "destination"; readonly address: Cidr | IpAddress; readonly negate?: boolean }
  /** `name` ends in `+` to match every interface with that prefix. */
  | { readonly kind: "in-interface"; readonly name: string; readonly negate?: boolean }
  | {
      readonly kind: "address-type";
      readonly side: "source" | "destination";
      readonly type: "LOCAL";
      readonly negate?: boolean;
    }
  | { readonly kind: "mark"; readonly value: number; readonly mask: number; readonly negate?: boolean }
  | { readonly kind: "conntrack-state"; readonly states: readonly string[]; readonly negate?: boolean }
  /** The older form of `conntrack-state`, for rules that upstream writes with it. */
  | { readonly kind: "state"; readonly states: readonly string[] }
  /** `probability` in 0..1. */
  | { readonly kind: "random"; readonly probability: string }
  /** A BPF program of `hash-program.ts`. */
  | { readonly kind: "bytecode"; readonly code: string }
  | { readonly kind: "recent-check"; readonly name: string; readonly seconds: number }
  | { readonly kind: "recent-set"; readonly name: string }
  | { readonly kind: "nfacct"; readonly counter: string }
  /** An entry of an IP set; one direction for each dimension of the set. */
  | { readonly kind: "set"; readonly name: string; readonly directions: readonly SetDirection[] }
  /** The packet came in through a bridge port. */
  | { readonly kind: "bridge-port-in"; readonly negate?: boolean }
  /** The packet belongs to a connection to this IPVS virtual server. */
  | {
      readonly kind: "ipvs";
      readonly address: IpAddress;
      readonly protocol: ProtocolName;
      readonly port: number;
    };

/** The side of the packet that a dimension of a set is compared with. */
export type SetDirection = "src" | "dst";

/** What happens to a matching packet; `none` only counts it. */
export type RuleTarget =
  | { readonly kind: "none" }
  | { readonly kind: "jump"; readonly chain: string }
  | { readonly kind: "accept" }
  | { readonly kind: "drop" }
  | { readonly kind: "reject" }
  | { readonly kind: "return" }
  | { readonly kind: "mark"; readonly operation: "or" | "xor"; readonly value: number }
  | { readonly kind: "masquerade"; readonly randomFully: boolean }
  /** To this port of the incoming interface's address; for the host's own packets, of loopback. */
  | { readonly kind: "redirect"; readonly port: number }
  /** `to` is `ip:port` or `[ip]:port`. */
  | { readonly kind: "dnat"; readonly to: string };

export interface Rule {
  readonly chain: string;
  readonly matches: readonly RuleMatch[];
  readonly target: RuleTarget;
}
