/** Constants of libnftables' JSON. */

import { listOf, named } from "../../kernel/nftables/json.ts";
import { parseCidr, parseIpAddress } from "../../net/ip.ts";
import { orderOf, type Pattern, PROTOCOL_NAMES, prefixRange, protocolName, type Scalar } from "../value.ts";

/** A constant in canonical form: one spelling for each address and protocol. */
export function scalarOf(value: unknown): Scalar | undefined {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string") return undefined;
  return parseIpAddress(value) ?? protocolName(value);
}

/** Words by number: nft prints numbers with -n, and for protocols that it has no name for. */
export type Names = Readonly<Record<number, string>>;

/** The words for each key of a packet, connection or route, as libnftables names the keys. */
export const NAMES: Readonly<Record<string, Names>> = {
  protocol: PROTOCOL_NAMES,
  l4proto: PROTOCOL_NAMES,
  nexthdr: PROTOCOL_NAMES,
  state: { 1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked" },
  status: { 16: "snat", 32: "dnat" },
  type: { 1: "unicast", 2: "local", 3: "broadcast", 5: "multicast" },
  nfproto: { 2: "ipv4", 10: "ipv6" },
};

/**
 * The pattern of a constant on the right of a comparison, or in an element's key. Undefined: not understood.
 *
 * @param names words for the numbers of what it is compared with. @default numbers stay numbers
 */
export function patternOf(value: unknown, names: Names = {}): Pattern | undefined {
  const given = scalarOf(value);
  const scalar = typeof given === "number" ? (names[given] ?? given) : given;
  if (scalar !== undefined) {
    const isBeginning = typeof scalar === "string" && scalar.endsWith("*") && scalar !== "*";
    return isBeginning ? { kind: "beginning", text: scalar.slice(0, -1) } : { kind: "exact", value: scalar };
  }
  const { name, body, fields } = named(value);
  if (name === "range") return rangeOf(body);
  if (name === "prefix") {
    const cidr = parseCidr(`${fields.addr}/${fields.len}`);
    return cidr === undefined ? undefined : prefixRange(cidr);
  }
  return undefined;
}

function rangeOf(body: unknown): Pattern | undefined {
  const [first, last] = listOf(body).map(scalarOf);
  if (first === undefined || last === undefined) return undefined;
  const [from, to] = [orderOf(first), orderOf(last)];
  return from === undefined || to === undefined ? undefined : { kind: "range", first: from, last: to };
}
