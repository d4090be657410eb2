/** Values of packet fields and constants, and the patterns they are compared with. */
import { type IpAddress, ipBytes, type parseCidr, parseIpAddress, splitCidr } from "../net/ip.ts";

/** A field of a packet, a part of a key, or a constant. */
export type Scalar = string | number;

/** More than one part is a concatenation. */
export type Parts = readonly Scalar[];

/** Undefined for parts that are not known. */
export type SomeParts = readonly (Scalar | undefined)[];

/** What one part is compared with. */
export type Pattern =
  | { readonly kind: "exact"; readonly value: Scalar }
  | { readonly kind: "range"; readonly first: bigint; readonly last: bigint }
  /** Names with this prefix. */
  | { readonly kind: "beginning"; readonly text: string };

/** By the number in a packet header. */
export const PROTOCOL_NAMES: Readonly<Record<number, string>> = {
  1: "icmp",
  6: "tcp",
  17: "udp",
  58: "icmpv6",
  132: "sctp",
};

/** The usual name of a protocol; its number if it has none here. */
export function protocolName(value: Scalar): Scalar {
  if (typeof value === "number") return PROTOCOL_NAMES[value] ?? value;
  return value === "ipv6-icmp" ? "icmpv6" : value;
}

const known = new Map<string, bigint>();
const MEMORY_LIMIT = 100_000;

/** An address as a number, which orders addresses of one family as the kernel does. */
function addressNumber(address: IpAddress): bigint {
  let value = 0n;
  for (const byte of ipBytes(address)) value = (value << 8n) | BigInt(byte);
  if (known.size >= MEMORY_LIMIT) known.clear();
  known.set(address, value);
  return value;
}

/** The value as a number, for comparisons by size; undefined for names. */
export function orderOf(value: Scalar): bigint | undefined {
  if (typeof value === "number") return BigInt(value);
  const found = known.get(value);
  if (found !== undefined) return found;
  const address = parseIpAddress(value);
  return address === undefined ? undefined : addressNumber(address);
}

/** All addresses of a prefix. */
export function prefixRange(cidr: NonNullable<ReturnType<typeof parseCidr>>): Pattern {
  const { address, length } = splitCidr(cidr);
  const bits = address.includes(":") ? 128 : 32;
  const first = addressNumber(address);
  return { kind: "range", first, last: first + (1n << BigInt(bits - length)) - 1n };
}

/** Whether a part fits the pattern. */
export function fits(pattern: Pattern, value: Scalar): boolean {
  switch (pattern.kind) {
    case "exact":
      return pattern.value === value;
    case "beginning":
      return typeof value === "string" && value.startsWith(pattern.text);
    case "range": {
      const order = orderOf(value);
      return order !== undefined && order >= pattern.first && order <= pattern.last;
    }
  }
}

/** The text of a key; equal for equal keys. */
export function keyText(parts: Parts): string {
  return parts.length === 1 ? String(parts[0]) : parts.join(" . ");
}
