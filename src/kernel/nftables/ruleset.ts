/**
 * An nftables ruleset as data, as far as a service proxy needs one. Planners create it; it is printed as nft text or libnftables
 * JSON, encoded to netlink messages, and interpreted by the tracer. It knows nothing about Services.
 */

import type { Cidr, IpAddress } from "../../net/ip.ts";
import type { ProtocolName } from "../../net/protocol.ts";

export type NftFamily = "ip" | "ip6";

/** The types of which keys of sets and maps consist; a slot is a number that `numgen` draws. */
export type NftKeyType = "address" | "protocol" | "port" | "slot";

/**
 * The fields that lookups read, in the order of the key: of the packet, or of its connection in the original direction (`ct
 * original ip daddr`, `ct original proto-dst`) or the reply direction (`ct reply ip saddr`, `ct reply proto-src`).
 */
export type NftField =
  | "saddr"
  /** The first bits of the source, with all others 0: `ip saddr & 255.255.255.0` for `saddr/24`. */
  | `saddr/${number}`
  | "daddr"
  | "l4proto"
  | "sport"
  | "dport"
  | "original-daddr"
  | "original-dport"
  | "reply-saddr"
  | "reply-sport";

/** What a slot is computed from, in place of a random number. Without a written seed the kernel would draw one. */
export interface NftHash {
  /** `jhash ip saddr`, `jhash ip saddr . th sport` */
  readonly fields: readonly ["saddr"] | readonly ["saddr", "sport"];
  readonly seed: number;
}

/** A key of fields; with `slots` a random number below it follows, and with `hash` that of the client's hash instead. */
export interface NftSlotKey {
  readonly fields: readonly NftField[];
  readonly slots?: number;
  readonly hash?: NftHash;
}

/** The end of a rule: continue in a chain, return to the one that jumped here, or drop the packet. */
export type NftVerdict =
  | { readonly kind: "jump" | "goto"; readonly chain: string }
  | { readonly kind: "return" | "drop" };

/** How many bits of the source a field reads; undefined for fields other than `saddr/…`. */
export function sourceBits(field: NftField): number | undefined {
  return field.startsWith("saddr/") ? Number(field.slice("saddr/".length)) : undefined;
}

/** One target of destination NAT. */
export interface NftTarget {
  readonly ip: IpAddress;
  readonly port: number;
}

/** One statement of a rule, at the level at which nft prints it. @default `negate` is false. */
export type NftStatement =
  /** `ct state new` */
  | { readonly kind: "ct-new" }
  /** `ct status dnat` */
  | { readonly kind: "ct-dnat" }
  /** `ip saddr 10.0.0.0/8`; several prefixes become an anonymous set. A single address is a prefix of full length. */
  | {
      readonly kind: "address";
      readonly side: "saddr" | "daddr";
      readonly negate?: boolean;
      readonly cidrs: readonly Cidr[];
    }
  /** `fib saddr type local` */
  | { readonly kind: "fib-local"; readonly side: "saddr" | "daddr" }
  /** `iifname "cni0"`, `iifname "veth*"` */
  | { readonly kind: "in-interface"; readonly name: string; readonly isPrefix: boolean; readonly negate?: boolean }
  /** `meta mark & 0x4000 != 0` */
  | { readonly kind: "mark-test"; readonly mask: number }
  /** `meta l4proto tcp` */
  | { readonly kind: "l4proto"; readonly protocol: ProtocolName }
  /** `ip saddr . ip daddr @set`; negated `ip saddr . ip daddr != @set` */
  | {
      readonly kind: "lookup";
      readonly fields: readonly NftField[];
      readonly set: string;
      readonly negate?: boolean;
    }
  /** `meta mark set meta mark | 0x4000` */
  | { readonly kind: "mark-set"; readonly operation: "or" | "xor"; readonly value: number }
  /** `ip daddr . meta l4proto . th dport vmap @map` */
  | ({ readonly kind: "vmap"; readonly map: string } & NftSlotKey)
  /** `numgen random mod n vmap { 0 : goto a, … }` */
  | { readonly kind: "random-vmap"; readonly verdicts: readonly NftVerdict[] }
  /** `update @set { ip saddr }` */
  | { readonly kind: "update"; readonly set: string; readonly field: "saddr" }
  /** `update @map { ip saddr . th dport : ct reply ip saddr . ct reply proto-src }` */
  | {
      readonly kind: "update-map";
      readonly map: string;
      readonly key: readonly NftField[];
      readonly target: readonly [NftField, NftField];
    }
  /** `dnat ip to ip daddr . th dport . numgen random mod 3 map @map` */
  | ({ readonly kind: "map-dnat"; readonly map: string } & NftSlotKey)
  /** `dnat to 10.0.0.1:80` */
  | { readonly kind: "dnat"; readonly to: NftTarget }
  /** `dnat ip to numgen random mod n map { 0 : 10.0.0.1 . 80, … }` */
  | { readonly kind: "random-dnat"; readonly targets: readonly NftTarget[] }
  /** `masquerade fully-random` */
  | { readonly kind: "masquerade" }
  /** `counter name "…"` */
  | { readonly kind: "counter"; readonly name: string }
  /** `reject`, with the family's ICMP port-unreachable; or `reject with tcp reset` */
  | { readonly kind: "reject"; readonly withReset?: true }
  | { readonly kind: "verdict"; readonly verdict: NftVerdict };

export interface NftRule {
  readonly statements: readonly NftStatement[];
  readonly comment?: string;
}

/** The hook of a base chain. */
export interface NftHook {
  readonly type: "filter" | "nat";
  readonly hook: "prerouting" | "input" | "forward" | "output" | "postrouting";
  readonly priority: number;
  /** The verdict for packets that no rule decides. @default "accept" */
  readonly policy?: "drop";
}

export interface NftChain {
  readonly name: string;
  readonly hook?: NftHook;
  readonly comment?: string;
  readonly rules: readonly NftRule[];
}

/** The chains to which the rules' last verdicts lead, in rule order. */
export function targetsOf({ rules }: Pick<NftChain, "rules">): string[] {
  return rules.flatMap(({ statements }) => {
    const last = statements.at(-1);
    return last?.kind === "verdict" && "chain" in last.verdict ? [last.verdict.chain] : [];
  });
}

/** One value of a key, in the order of the key's types. */
export type NftValue = IpAddress | ProtocolName | number;

export interface NftElement {
  /** Empty for the catch-all element, which matches all keys that are not in the set. */
  readonly key: readonly NftValue[];
  /** Verdict maps only. */
  readonly verdict?: NftVerdict;
  /** Maps with targets only. */
  readonly target?: NftTarget;
  readonly comment?: string;
  /** Read only, in sets with counters: the packets that matched it. */
  readonly packets?: number;
}

/** A set; with `isMap` a verdict map; with `hasTargets` a map to targets of destination NAT. */
export interface NftSet {
  readonly name: string;
  readonly key: readonly NftKeyType[];
  readonly isMap: boolean;
  readonly hasTargets?: true;
  /** The number of slots from which the key's slot is drawn: `numgen random mod 3` for 3. */
  readonly slots?: number;
  readonly comment?: string;
  /** For sets that packets fill: elements expire after this long. */
  readonly timeoutSeconds?: number;
  /** The most elements that packets can add. @default {@link DYNAMIC_SET_SIZE} */
  readonly size?: number;
  /** Each element counts the packets that match it. */
  readonly hasCounters?: true;
}

/** The kernel's default limit for a set that packets fill. */
export const DYNAMIC_SET_SIZE = 65_535;

/** The identity of an element within its set: its key as text. */
export function elementKey(key: readonly NftValue[]): string {
  return key.join(" . ");
}

/** Whether two targets are the same. */
export function equalTargets(a: NftTarget | undefined, b: NftTarget | undefined): boolean {
  return a === b || (a?.ip === b?.ip && a?.port === b?.port);
}

/** Whether two verdicts are the same. */
export function equalVerdicts(a: NftVerdict | undefined, b: NftVerdict | undefined): boolean {
  if (a?.kind !== b?.kind) return false;
  return a === undefined || b === undefined || !("chain" in a) || !("chain" in b) || a.chain === b.chain;
}
