/**
 * Values of set keys in the kernel's form: bytes in network order, each padded to four bytes in concatenations
 * (reference nfnetlink.md §5). Optimized for tens of thousands of elements: canonical text is parsed digit by digit.
 */

import { ipFromBytes, putIpBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, type ProtocolName, protocolNameOfNumber } from "../../net/protocol.ts";
import { HOST_IS_LITTLE_ENDIAN } from "../netlink/constants.ts";
import { align4 } from "../netlink/message-buffer.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../netlink/nfnetlink.ts";
import type { NftFamily, NftKeyType, NftValue } from "./ruleset.ts";
import { concatType, NFT_TYPES } from "./wire/constants.ts";

/** The differences between the families in packets and keys. */
export interface FamilyLayout {
  readonly family: NftFamily;
  readonly nfproto: number;
  readonly addressBytes: number;
  /** Values of keys: their size in bytes, and nft's type numbers. */
  readonly types: Readonly<Record<NftKeyType, { readonly bytes: number; readonly id: number }>>;
  /** Offsets in the network header. */
  readonly addressAt: Readonly<Record<"saddr" | "daddr", number>>;
  /** The ICMP code for "port unreachable". */
  readonly portUnreachable: number;
}

const TYPES = {
  protocol: { bytes: 1, id: NFT_TYPES.inet_proto },
  port: { bytes: 2, id: NFT_TYPES.inet_service },
  slot: { bytes: 4, id: NFT_TYPES.integer },
} as const;

export const LAYOUTS: Readonly<Record<NftFamily, FamilyLayout>> = {
  ip: {
    family: "ip",
    nfproto: NFPROTO_IPV4,
    addressBytes: 4,
    types: { address: { bytes: 4, id: NFT_TYPES.ipv4_addr }, ...TYPES },
    addressAt: { saddr: 12, daddr: 16 },
    portUnreachable: 3,
  },
  ip6: {
    family: "ip6",
    nfproto: NFPROTO_IPV6,
    addressBytes: 16,
    types: { address: { bytes: 16, id: NFT_TYPES.ipv6_addr }, ...TYPES },
    addressAt: { saddr: 8, daddr: 24 },
    portUnreachable: 4,
  },
};

/** The values of maps with targets have the form of a key. */
export const TARGET: readonly NftKeyType[] = ["address", "port"];

/** The size of a key in bytes: a single value as it is, several with padding. */
export function keyBytes(types: readonly NftKeyType[], layout: FamilyLayout): number {
  const [only, ...more] = types;
  if (only !== undefined && more.length === 0) return layout.types[only].bytes;
  let sum = 0;
  for (const type of types) sum += align4(layout.types[type].bytes);
  return sum;
}

/** nft's type number for a key of these types. */
export function keyTypeId(types: readonly NftKeyType[], layout: FamilyLayout): number {
  return concatType(types.map((type) => layout.types[type].id));
}

/** The inverse of {@link keyTypeId}; undefined if a part has another type. */
export function keyTypesOf(id: number, layout: FamilyLayout): NftKeyType[] | undefined {
  const types: NftKeyType[] = [];
  for (let rest = id; rest !== 0; rest >>>= 6) {
    const part = rest & 0x3f;
    const type = (["address", "protocol", "port", "slot"] as const).find((one) => layout.types[one].id === part);
    if (type === undefined) return undefined;
    types.unshift(type);
  }
  return types.length === 0 ? undefined : types;
}

/** Writes a key in register layout to zeroed bytes. @throws RangeError when the values do not fit the types. */
export function putKey(
  bytes: Uint8Array,
  start: number,
  types: readonly NftKeyType[],
  values: readonly NftValue[],
  layout: FamilyLayout,
): void {
  if (values.length !== types.length) {
    throw new RangeError(`nftables: a key of ${types.join(" . ")} cannot be ${values.join(" . ")}`);
  }
  let at = start;
  for (let index = 0; index < types.length; index++) {
    const type = types[index];
    const value = values[index];
    if (type === undefined || value === undefined) continue;
    putValue(bytes, at, type, value, layout);
    at += align4(layout.types[type].bytes);
  }
}

function putValue(bytes: Uint8Array, at: number, type: NftKeyType, value: NftValue, layout: FamilyLayout): void {
  switch (type) {
    case "address":
      putAddress(bytes, at, String(value), layout);
      return;
    case "protocol":
      // Elements of other programs may have protocols without a name here: those are numbers.
      bytes[at] = typeof value === "number" ? value : (PROTOCOL_NUMBERS[value as ProtocolName] ?? 0); // or an address: 0
      return;
    case "port": {
      const port = Number(value);
      bytes[at] = port >> 8;
      bytes[at + 1] = port;
      return;
    }
    case "slot":
      // A kernel integer, in host byte order.
      for (let index = 0; index < 4; index += 1) bytes[at + index] = Number(value) >>> (8 * index);
  }
}

/** The values of a key; undefined if it has another length. */
export function decodeKey(
  types: readonly NftKeyType[],
  bytes: Uint8Array,
  layout: FamilyLayout,
): NftValue[] | undefined {
  if (bytes.length !== keyBytes(types, layout)) return undefined;
  const values: NftValue[] = [];
  let at = 0;
  for (const type of types) {
    values.push(getValue(bytes, at, type, layout));
    at += align4(layout.types[type].bytes);
  }
  return values;
}

function getValue(bytes: Uint8Array, at: number, type: NftKeyType, layout: FamilyLayout): NftValue {
  const first = bytes[at] ?? 0;
  switch (type) {
    case "address":
      return ipFromBytes(bytes.subarray(at, at + layout.addressBytes));
    case "protocol":
      return protocolNameOfNumber(first) ?? first;
    case "port":
      return (first << 8) | (bytes[at + 1] ?? 0);
    case "slot":
      return new DataView(bytes.buffer, bytes.byteOffset + at, 4).getUint32(0, HOST_IS_LITTLE_ENDIAN);
  }
}

/** The bytes of a canonical address in network order. @throws RangeError for an IPv6 address in family ip. */
export function addressBytes(address: string, layout: FamilyLayout): Uint8Array {
  const bytes = new Uint8Array(layout.addressBytes);
  putAddress(bytes, 0, address, layout);
  return bytes;
}

/** Writes a canonical address. In family ip6, an IPv4 address was IPv4-mapped before it became canonical: maps it again. */
export function putAddress(bytes: Uint8Array, at: number, address: string, layout: FamilyLayout): void {
  const isIPv4 = !address.includes(":");
  if (layout.addressBytes === 4 && !isIPv4) throw new RangeError(`nftables: ${address} is no address of family ip`);
  const isMapped = layout.addressBytes === 16 && isIPv4;
  if (isMapped) bytes.fill(0xff, at + 10, at + 12);
  putIpBytes(bytes, isMapped ? at + 12 : at, address);
}
