/**
 * A rule of ours as data: what the planners make and the restore payload spells (`rule-text.ts`). Matches stand in the order
 * in which they are spelled. Rules of any author, as `iptables-save` prints them, are `KernelRule`s (`parser/rule-syntax.ts`).
 */

import type { Cidr, IpAddress } from "../../net/ip.ts";
import type { ProtocolName } from "../../net/protocol.ts";

declare const brand: unique symbol;

/** A chain name within the kernel's limit of 28 characters. */
export type ChainName = string & { readonly [brand]: "ChainName" };

/** One condition of a rule. Absent `negate` means not negated. */
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
  /** The older spelling of `conntrack-state`, for rules that upstream writes so. */
  | { readonly kind: "state"; readonly states: readonly string[] }
  /** `probability` in 0..1. */
  | { readonly kind: "random"; readonly probability: string }
  | { readonly kind: "recent-check"; readonly name: string; readonly seconds: number }
  | { readonly kind: "recent-set"; readonly name: string }
  | { readonly kind: "nfacct"; readonly counter: string }
  /** An entry of an IP set; one direction for each dimension of the set. */
  | { readonly kind: "set"; readonly name: string; readonly directions: readonly SetDirection[] }
  /** The packet came in by a port of a bridge, or not. */
  | { readonly kind: "bridge-port-in"; readonly negate?: boolean }
  /** The packet belongs to a connection of this virtual server of the kernel's IPVS. */
  | {
      readonly kind: "ipvs";
      readonly address: IpAddress;
      readonly protocol: ProtocolName;
      readonly port: number;
    };

/** Which side of a packet a dimension of a set is compared with. */
export type SetDirection = "src" | "dst";

/** What happens to a packet that matches; `none` only counts it. */
export type RuleTarget =
  | { readonly kind: "none" }
  | { readonly kind: "jump"; readonly chain: string }
  | { readonly kind: "accept" }
  | { readonly kind: "drop" }
  | { readonly kind: "reject" }
  | { readonly kind: "return" }
  | { readonly kind: "mark"; readonly operation: "or" | "xor"; readonly value: number }
  | { readonly kind: "masquerade"; readonly randomFully: boolean }
  /** To this port of the address that the packet came in at; of loopback for packets of the host itself. */
  | { readonly kind: "redirect"; readonly port: number }
  /** `to` is `ip:port` or `[ip]:port`. */
  | { readonly kind: "dnat"; readonly to: string };

export interface Rule {
  readonly chain: string;
  readonly matches: readonly RuleMatch[];
  readonly target: RuleTarget;
}
