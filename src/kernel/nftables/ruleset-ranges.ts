/** Ranges of addresses as values of keys. Pure. */
import { type IpInterval, intervalAsPrefix } from "../../net/intervals.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { NftRange, NftValue } from "./ruleset.ts";

/** An interval as a value of a key. */
export function rangeOf({ first, last }: IpInterval): NftRange {
  return `${first}-${last}`;
}

/** The ends of a range. @throws RangeError for a value that is none. */
export function rangeEnds(value: NftValue | undefined): IpInterval {
  const [first, last, ...more] = String(value).split("-");
  if (first === undefined || last === undefined || more.length > 0) {
    throw new RangeError(`nftables: ${value} is no range of addresses`);
  }
  return { first: first as IpAddress, last: last as IpAddress }; // the two parts of an NftRange
}

/** As nft prints a range: a single address, a prefix, or both ends. */
export function rangeText(value: NftValue | undefined): string {
  const ends = rangeEnds(value);
  const prefix = intervalAsPrefix(ends);
  if (prefix === undefined) return `${ends.first}-${ends.last}`;
  const isWhole = prefix.length === (prefix.address.includes(":") ? 128 : 32);
  return isWhole ? prefix.address : `${prefix.address}/${prefix.length}`;
}
