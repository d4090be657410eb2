/** Constants of libnftables' JSON. Pure. */

import { isObject, listOf, named } from "../../kernel/nftables/json.ts";
import { parseCidr, parseIpAddress } from "../../net/ip.ts";
import { orderOf, type Pattern, prefixRange, protocolName, type Scalar } from "../value.ts";

/** A constant as the kernel compares it: addresses and protocols in one spelling. */
export function scalarOf(value: unknown): Scalar | undefined {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string") return undefined;
  return parseIpAddress(value) ?? protocolName(value);
}

/** A constant that stands on the right of a comparison, or as a part of an element's key. Undefined: not understood. */
export function patternOf(value: unknown): Pattern | undefined {
  const scalar = scalarOf(value);
  if (scalar !== undefined) {
    const isBeginning = typeof scalar === "string" && scalar.endsWith("*") && scalar !== "*";
    return isBeginning ? { kind: "beginning", text: scalar.slice(0, -1) } : { kind: "exact", value: scalar };
  }
  const found = named(value);
  if (found?.name === "range") return rangeOf(found.body);
  if (found?.name === "prefix" && isObject(found.body)) {
    const cidr = parseCidr(`${found.body.addr}/${found.body.len}`);
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
