/** Sets of values of one packet field: ranges of numbers or addresses, or names. All are immutable. */
import { type IpAddress, ipFromBytes } from "../../net/ip.ts";
import { firstFrom } from "../../trace/pattern-index.ts";
import { fits, orderOf, type Pattern, type Scalar } from "../../trace/value.ts";

export interface Domain {
  readonly isSingle: boolean;
  has(value: Scalar): boolean;
  /** A value of the set. @param other a value to avoid if there is a choice. */
  sample(other?: Scalar): Scalar;
  /** Divides the set into parts whose values belong to the same group; the rest belongs to none. */
  divided(groups: Groups): readonly Domain[];
}

type Range = readonly [first: bigint, last: bigint];

/** Which values fit the same patterns. Groups for which `sameAs` returns the same text are one. */
export class Groups {
  readonly patterns: readonly Pattern[];
  readonly #sameAs: (fitting: readonly number[]) => string;
  #spans: readonly Span[] | undefined;
  #parts: Map<string, readonly Domain[]> | undefined;

  /** @param sameAs gets the indices of the patterns that values fit. */
  constructor(patterns: readonly Pattern[], sameAs: (fitting: readonly number[]) => string) {
    this.patterns = patterns;
    this.#sameAs = sameAs;
  }

  /** All numbers, ascending. */
  get spans(): readonly Span[] {
    this.#spans ??= this.#allSpans();
    return this.#spans;
  }

  /** Remembers the last few results. */
  once(whole: string, divide: () => readonly Domain[]): readonly Domain[] {
    this.#parts ??= new Map();
    const parts = this.#parts.get(whole) ?? divide();
    this.#parts.delete(whole);
    this.#parts.set(whole, parts);
    for (const oldest of this.#parts.keys()) if (this.#parts.size > KEPT) this.#parts.delete(oldest);
    return parts;
  }

  #allSpans(): Span[] {
    const starts = new Map<bigint, number[]>();
    const ends = new Map<bigint, number[]>();
    for (const [index, pattern] of this.patterns.entries()) {
      const range = rangeOf(pattern);
      if (range === undefined) continue;
      listAt(starts, range[0]).push(index);
      listAt(ends, range[1] + 1n).push(index);
    }
    const bounds = [...new Set([...starts.keys(), ...ends.keys()])].sort((a, b) => (a < b ? -1 : 1));
    const active = new Set<number>();
    const numbers = new Map<string, number>();
    const spans: Span[] = [];
    let first = 0n;
    let group = REST;
    for (const bound of bounds) {
      if (bound > first) spans.push({ range: [first, bound - 1n], group });
      for (const index of ends.get(bound) ?? []) active.delete(index);
      for (const index of starts.get(bound) ?? []) active.add(index);
      first = bound;
      group = active.size === 0 ? REST : this.#groupOf(active, numbers);
    }
    return [...spans, { range: [first, 1n << 128n], group }];
  }

  #groupOf(active: ReadonlySet<number>, numbers: Map<string, number>): number {
    const text = this.#sameAs([...active].sort((a, b) => a - b));
    const number = numbers.get(text) ?? numbers.size;
    numbers.set(text, number);
    return number;
  }
}

/** With so many spans it is worth while to remember what became of a domain with few ranges. */
const MANY_SPANS = 1_000;
const FEW_RANGES = 32;
const KEPT = 16;

interface Span {
  readonly range: Range;
  readonly group: number;
}

/** The group of values that fit no pattern. */
const REST = -1;

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
    const range = this.#ranges[firstFrom(this.#ranges, 0, ([, last]) => last >= order)];
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

  divided(groups: Groups): readonly Domain[] {
    const isKept = groups.spans.length > MANY_SPANS && this.#ranges.length < FEW_RANGES;
    return isKept ? groups.once(this.#ranges.join(), () => this.#divided(groups)) : this.#divided(groups);
  }

  #divided({ spans }: Groups): readonly Domain[] {
    const found = new Map<number, Range[]>();
    let at = 0;
    for (let next = 0; next < this.#ranges.length; ) {
      const range = this.#ranges[next] ?? EMPTY;
      const [first, last] = range;
      if ((spans[at]?.range[1] ?? first) < first) at = firstFrom(spans, at, (span) => span.range[1] >= first);
      const { range: [from, to] = range, group = REST } = spans[at] ?? {};
      if (from <= first && last <= to) {
        const end = firstFrom(this.#ranges, next, ([, other]) => other > to);
        for (const list = listAt(found, group); next < end; next += 1) list.push(this.#ranges[next] ?? EMPTY);
        continue;
      }
      for (let span = spans[at]; span !== undefined && span.range[0] <= last; span = spans[++at]) {
        const isWhole = span.range[0] >= first && span.range[1] <= last;
        listAt(found, span.group).push(isWhole ? span.range : common(span.range, range));
        // It may reach into the next range.
        if (span.range[1] >= last) break;
      }
      next += 1;
    }
    if (found.size === 1) return [this];
    const rest = found.get(REST);
    found.delete(REST);
    return [...found.values(), ...(rest === undefined ? [] : [rest])].map((one) => new Ranges(one, this.#valueAt));
  }
}

const EMPTY: Range = [0n, -1n];

function common([first, last]: Range, [from, to]: Range): Range {
  return [first > from ? first : from, last < to ? last : to];
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
  return all.divided(new Groups(without, () => "")).at(-1) ?? all;
}

/** The addresses inside the ranges. */
export function onlyAddresses(bits: 32 | 128, ranges: readonly Pattern[]): Domain {
  const all = allAddresses(bits);
  return all.divided(new Groups(ranges, () => ""))[0] ?? all;
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
  divided({ patterns }: Groups): readonly Domain[] {
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
