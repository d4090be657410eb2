/** Finds the few of many items whose pattern a value fits, without a scan of all. */
import { fits, orderOf, type Pattern, type Scalar } from "./value.ts";

interface Range<T> {
  readonly first: bigint;
  readonly last: bigint;
  /** The highest last number of all ranges up to this one. */
  readonly most: bigint;
  readonly item: T;
}

export class PatternIndex<T> {
  readonly #exact = new Map<Scalar, T[]>();
  /** By their first number. */
  readonly #ranges: Range<T>[] = [];
  readonly #others: { readonly pattern: Pattern; readonly item: T }[] = [];

  constructor(items: readonly T[], patternOf: (item: T) => Pattern) {
    const ranges: Omit<Range<T>, "most">[] = [];
    for (const item of items) {
      const pattern = patternOf(item);
      const same = pattern.kind === "exact" ? this.#exact.get(pattern.value) : undefined;
      if (same !== undefined) same.push(item);
      else if (pattern.kind === "exact") this.#exact.set(pattern.value, [item]);
      else if (pattern.kind === "range") ranges.push({ first: pattern.first, last: pattern.last, item });
      else this.#others.push({ pattern, item });
    }
    let most = -1n;
    for (const range of ranges.sort((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0))) {
      if (range.last > most) most = range.last;
      this.#ranges.push({ ...range, most });
    }
  }

  at(value: Scalar): readonly T[] {
    const exact = this.#exact.get(value) ?? [];
    if (this.#ranges.length === 0 && this.#others.length === 0) return exact;
    const found = [...exact, ...this.#others.filter(({ pattern }) => fits(pattern, value)).map(({ item }) => item)];
    const order = this.#ranges.length === 0 ? undefined : orderOf(value);
    if (order === undefined) return found;
    let at = firstFrom(this.#ranges, 0, ({ first }) => first > order);
    for (let range = this.#ranges[--at]; range !== undefined && range.most >= order; range = this.#ranges[--at])
      if (range.last >= order) found.push(range.item);
    return found;
  }
}

/** The index of the first item from this one on for which it holds, as it does for all behind. */
export function firstFrom<T>(items: readonly T[], from: number, holds: (item: T) => boolean): number {
  let [low, high] = [from, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const item = items[middle];
    if (item !== undefined && !holds(item)) low = middle + 1;
    else high = middle;
  }
  return low;
}
