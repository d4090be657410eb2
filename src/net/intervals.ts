/** Prefixes as merged address intervals: how the kernel keeps a list of prefixes, and how nft prints it back. */
import { type Cidr, familyOf, type IpAddress, type IpFamily, ipBytes, ipFromBytes, splitCidr } from "./ip.ts";

/** Both ends are included. */
export interface IpInterval {
  readonly first: IpAddress;
  readonly last: IpAddress;
}

interface Span {
  readonly first: bigint;
  last: bigint;
}

const BITS = { IPv4: 32, IPv6: 128 } as const;

/** Sorts prefixes of one family and merges those that overlap or touch. */
export function mergedIntervals(cidrs: readonly Cidr[]): IpInterval[] {
  const [some] = cidrs;
  if (some === undefined) return [];
  const family = familyOf(some);
  const spans = cidrs.map((cidr) => spanOf(cidr, family)).sort((a, b) => (a.first < b.first ? -1 : 1));
  const merged: Span[] = [];
  for (const span of spans) {
    const previous = merged.at(-1);
    if (previous !== undefined && span.first <= previous.last + 1n) {
      if (span.last > previous.last) previous.last = span.last;
    } else merged.push({ ...span });
  }
  return merged.map(({ first, last }) => ({ first: toAddress(first, family), last: toAddress(last, family) }));
}

/** The prefix that is exactly this interval, if there is one. */
export function intervalAsPrefix({ first, last }: IpInterval): { address: IpAddress; length: number } | undefined {
  const family = familyOf(first);
  const size = toNumber(last) - toNumber(first) + 1n;
  const hostBits = size.toString(2).length - 1;
  const isPowerOfTwo = size === 1n << BigInt(hostBits);
  if (!isPowerOfTwo || toNumber(first) % size !== 0n) return undefined;
  return { address: first, length: BITS[family] - hostBits };
}

/** The address after this one; undefined after the last. */
export function nextAddress(address: IpAddress): IpAddress | undefined {
  const family = familyOf(address);
  const next = toNumber(address) + 1n;
  return next >> BigInt(BITS[family]) === 0n ? toAddress(next, family) : undefined;
}

function spanOf(cidr: Cidr, family: IpFamily): Span {
  const { address, length } = splitCidr(cidr);
  const first = toNumber(address);
  return { first, last: first + (1n << BigInt(BITS[family] - length)) - 1n };
}

function toNumber(address: IpAddress): bigint {
  let value = 0n;
  for (const byte of ipBytes(address)) value = (value << 8n) | BigInt(byte);
  return value;
}

function toAddress(value: bigint, family: IpFamily): IpAddress {
  const bytes = new Uint8Array(BITS[family] / 8);
  let rest = value;
  for (let index = bytes.length - 1; index >= 0; index -= 1) {
    bytes[index] = Number(rest & 255n);
    rest >>= 8n;
  }
  return ipFromBytes(bytes);
}
