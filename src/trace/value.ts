/** Values of packet fields and of constants, and what they are compared with. Pure. */
import { type IpAddress, ipBytes, type parseCidr, parseIpAddress, splitCidr } from "../net/ip.ts";

/** A field of a packet, a part of a key, or a constant. */
export type Scalar = string | number;

/** Several parts are a concatenation. */
export type Parts = readonly Scalar[];

/** Whether a part is one that is meant. */
export type Pattern =
  | { readonly kind: "exact"; readonly value: Scalar }
  | { readonly kind: "range"; readonly first: bigint; readonly last: bigint }
  /** Names that begin so. */
  | { readonly kind: "beginning"; readonly text: string };

/** By their number in a header. */
export const PROTOCOL_NAMES: Readonly<Record<number, string>> = {
  1: "icmp",
  6: "tcp",
  17: "udp",
  58: "icmpv6",
  132: "sctp",
};

/** A protocol by its usual name. Pure. */
export function protocolName(value: Scalar): Scalar {
  if (typeof value === "number") return PROTOCOL_NAMES[value] ?? value;
  return value === "ipv6-icmp" ? "icmpv6" : value;
}

const known = new Map<string, bigint>();
const MEMORY_LIMIT = 100_000;

/** A number that orders addresses of one family as the kernel does. */
function addressNumber(address: IpAddress): bigint {
  let value = 0n;
  for (const byte of ipBytes(address)) value = (value << 8n) | BigInt(byte);
  if (known.size >= MEMORY_LIMIT) known.clear();
  known.set(address, value);
  return value;
}

/** For comparisons by size; undefined for names. */
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

/** Whether a part is what the pattern means. */
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

/** A key as text; equal for equal keys. */
export function keyText(parts: Parts): string {
  return parts.length === 1 ? String(parts[0]) : parts.join(" . ");
}
