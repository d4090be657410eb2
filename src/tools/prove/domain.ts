/** Sets of values of one packet field: ranges of numbers or addresses, or names. All are immutable. */
import { type IpAddress, ipFromBytes } from "../../net/ip.ts";
import { fits, orderOf, type Pattern, type Scalar } from "../../trace/value.ts";

export interface Domain {
  readonly isSingle: boolean;
  has(value: Scalar): boolean;
  /** A value of the set. @param other a value to avoid if there is a choice. */
  sample(other?: Scalar): Scalar;
  /**
   * Divides the set into parts whose values fit the same patterns; the rest fits none. Parts for which `sameAs` returns the same
   * text are joined.
   * @param sameAs gets the indices of the patterns that a part fits.
   */
  divided(patterns: readonly Pattern[], sameAs: (fitting: readonly number[]) => string): readonly Domain[];
}

type Range = readonly [first: bigint, last: bigint];

/** Ranges of numbers, or of addresses as numbers. */
class Ranges implements Domain {
  readonly #ranges: readonly Range[];
  readonly #valueAt: (order: bigint) => Scalar;

  /** @param ranges ascending, disjoint, at least one. @param valueAt the value for a number. */
  constructor(ranges: readonly Range[], valueAt: (order: bigint) => Scalar) {
    this.#ranges = ranges;
    this.#valueAt = valueAt;
  }

  get isSingle(): boolean {
    const [first] = this.#ranges;
    return this.#ranges.length === 1 && first !== undefined && first[0] === first[1];
  }

  has(value: Scalar): boolean {
    const order = orderOf(value);
    if (order === undefined) return false;
    const range = this.#ranges[this.#indexAt(order)];
    return range !== undefined && range[0] <= order;
  }

  /** From the middle of the first range: addresses at its ends are unusual. */
  sample(other?: Scalar): Scalar {
    const [first, last] = this.#ranges[0] ?? [0n, 0n];
    const value = this.#valueAt(first + (last - first) / 2n);
    if (value !== other || this.isSingle) return value;
    const [next = last] = this.#ranges[1] ?? [];
    return this.#valueAt(first === last ? next : last);
  }

  divided(patterns: readonly Pattern[], sameAs: (fitting: readonly number[]) => string): readonly Domain[] {
    const starts = new Map<bigint, number[]>();
    const ends = new Map<bigint, number[]>();
    for (const [index, pattern] of patterns.entries()) {
      const range = rangeOf(pattern);
      if (range === undefined) continue;
      listAt(starts, range[0]).push(index);
      listAt(ends, range[1] + 1n).push(index);
    }
    const bounds = [...new Set([...starts.keys(), ...ends.keys()])].sort((a, b) => (a < b ? -1 : 1));
    const active = new Set<number>();
    const groups = new Map<string, Range[]>();
    for (const [at, bound] of bounds.entries()) {
      for (const index of ends.get(bound) ?? []) active.delete(index);
      for (const index of starts.get(bound) ?? []) active.add(index);
      const next = bounds[at + 1];
      if (active.size === 0 || next === undefined) continue;
      const parts = this.#clipped(bound, next - 1n);
      if (parts.length === 0) continue;
      const group = sameAs([...active].sort((a, b) => a - b));
      listAt(groups, group).push(...parts);
    }
    const taken = [...groups.values()].flat().sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const rest = this.#without(taken);
    return [...groups.values(), ...(rest.length > 0 ? [rest] : [])].map((ranges) => new Ranges(ranges, this.#valueAt));
  }

  /** The first range that does not end before this. */
  #indexAt(order: bigint): number {
    let [low, high] = [0, this.#ranges.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#ranges[middle]?.[1] ?? order) < order) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #clipped(first: bigint, last: bigint): Range[] {
    const found: Range[] = [];
    for (let at = this.#indexAt(first); at < this.#ranges.length; at += 1) {
      const range = this.#ranges[at];
      if (range === undefined || range[0] > last) break;
      found.push([range[0] > first ? range[0] : first, range[1] < last ? range[1] : last]);
    }
    return found;
  }

  /** @param taken ascending, within this. */
  #without(taken: readonly Range[]): Range[] {
    const left: Range[] = [];
    let at = 0;
    for (const [first, last] of this.#ranges) {
      let from = first;
      for (let next = taken[at]; next !== undefined && next[0] <= last; next = taken[++at]) {
        if (next[0] > from) left.push([from, next[0] - 1n]);
        from = next[1] + 1n;
      }
      if (from <= last) left.push([from, last]);
    }
    return left;
  }
}

function listAt<K, V>(map: Map<K, V[]>, key: K): V[] {
  const known = map.get(key);
  if (known !== undefined) return known;
  const list: V[] = [];
  map.set(key, list);
  return list;
}

function rangeOf(pattern: Pattern): Range | undefined {
  if (pattern.kind === "range") return [pattern.first, pattern.last];
  const order = pattern.kind === "exact" ? orderOf(pattern.value) : undefined;
  return order === undefined ? undefined : [order, order];
}

export const PORTS = new Ranges([[0n, 65_535n]], Number);
/** From a header without data on; in two parts, so that samples are short. */
export const UDP_LENGTHS = new Ranges(
  [
    [8n, 511n],
    [512n, 65_535n],
  ],
  Number,
);

/** All addresses of a family outside the ranges. */
export function addressDomain(bits: 32 | 128, without: readonly Pattern[]): Domain {
  const all = allAddresses(bits);
  return all.divided(without, () => "").at(-1) ?? all;
}

/** The addresses inside the ranges. */
export function onlyAddresses(bits: 32 | 128, ranges: readonly Pattern[]): Domain {
  const all = allAddresses(bits);
  return all.divided(ranges, () => "")[0] ?? all;
}

function allAddresses(bits: 32 | 128): Domain {
  const length = bits / 8;
  const addressAt = (order: bigint): IpAddress =>
    ipFromBytes(Uint8Array.from({ length }, (_, index) => Number((order >> BigInt(8 * (length - 1 - index))) & 255n)));
  return new Ranges([[0n, (1n << BigInt(bits)) - 1n]], addressAt);
}

/** Names: a single one, or all with a prefix except some. */
export class Names implements Domain {
  readonly #is: Pattern & { kind: "exact" | "beginning" };
  readonly #not: readonly Pattern[];
  readonly #usual: readonly string[];

  /** @param usual names that samples prefer. */
  constructor(is: Pattern & { kind: "exact" | "beginning" }, not: readonly Pattern[], usual: readonly string[]) {
    this.#is = is;
    this.#not = not;
    this.#usual = usual;
  }

  get isSingle(): boolean {
    return this.#is.kind === "exact";
  }

  has(value: Scalar): boolean {
    return fits(this.#is, value) && !this.#not.some((pattern) => fits(pattern, value));
  }

  sample(): Scalar {
    if (this.#is.kind === "exact") return this.#is.value;
    const usual = this.#usual.find((name) => this.has(name));
    for (let number = 0; ; number += 1) {
      const name = usual ?? `${this.#is.text === "" ? "other" : this.#is.text}${number}`;
      if (this.has(name)) return name;
    }
  }

  /** Names are few, so parts with the same outcome are not joined. */
  divided(patterns: readonly Pattern[]): readonly Domain[] {
    const unique = new Map<string, Pattern & { kind: "exact" | "beginning" }>();
    for (const pattern of patterns) {
      if (pattern.kind === "exact") unique.set(`=${pattern.value}`, pattern);
      else if (pattern.kind === "beginning") unique.set(`^${pattern.text}`, pattern);
    }
    const all = [...unique.values()];
    const parts = all.flatMap((pattern) => this.#part(pattern, all));
    const rest = new Names(this.#is, [...this.#not, ...all], this.#usual);
    return rest.#isEmpty() ? parts : [...parts, rest];
  }

  /** The part of this set that fits the pattern and no narrower one. */
  #part(pattern: Pattern & { kind: "exact" | "beginning" }, all: readonly Pattern[]): Names[] {
    if (pattern.kind === "exact") return this.has(pattern.value) ? [new Names(pattern, [], this.#usual)] : [];
    if (this.#is.kind === "exact") return [];
    const [own, other] = [this.#is.text, pattern.text];
    if (!own.startsWith(other) && !other.startsWith(own)) return [];
    const is: Pattern & { kind: "beginning" } = other.length >= own.length ? pattern : this.#is;
    const narrower = all.filter((one) => one !== pattern && fitsWithin(one, is.text));
    const part = new Names(is, [...this.#not, ...narrower], this.#usual);
    return part.#isEmpty() ? [] : [part];
  }

  #isEmpty(): boolean {
    if (this.#is.kind === "exact")
      return this.#not.some((pattern) => fits(pattern, this.#is.kind === "exact" ? this.#is.value : ""));
    const { text } = this.#is;
    return this.#not.some((pattern) => pattern.kind === "beginning" && text.startsWith(pattern.text));
  }
}

function fitsWithin(pattern: Pattern, beginning: string): boolean {
  if (pattern.kind === "exact") return String(pattern.value).startsWith(beginning);
  return pattern.kind === "beginning" && pattern.text.length > beginning.length && pattern.text.startsWith(beginning);
}
