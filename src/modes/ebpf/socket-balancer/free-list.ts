/**
 * Free runs of an array. A freed run is reused only after a rest, because a reader in the kernel may still use it
 * (reference ebpf-operation.md §5.4).
 */

/** Longer than any program runs, even if its processor is preempted meanwhile. */
export const REST_MS = 5_000;

/** Runs whose lengths are powers of two, within a capacity that can grow. */
export class FreeList {
  readonly #nowMs: () => number;
  /** By length; oldest first. */
  readonly #resting = new Map<number, { readonly base: number; readonly sinceMs: number }[]>();
  #capacity: number;
  /** Nothing was ever allocated from here on. */
  #untouched = 0;

  constructor(capacity: number, nowMs: () => number) {
    this.#capacity = capacity;
    this.#nowMs = nowMs;
  }

  grow(capacity: number): void {
    this.#capacity = capacity;
  }

  /** Call before the first {@link take}, in ascending order: this place is used. The gaps between them rest first. */
  occupy(at: number): void {
    for (; this.#untouched < at; this.#untouched++) this.giveBack(this.#untouched, 1);
    this.#untouched = at + 1;
  }

  /** @returns where the run begins; undefined if there is no room. */
  take(length: number): number | undefined {
    const rested = this.#takeRested(length);
    if (rested !== undefined) return rested;
    if (this.#untouched + length > this.#capacity) return this.#split(length);
    const base = this.#untouched;
    this.#untouched += length;
    return base;
  }

  #takeRested(length: number): number | undefined {
    const resting = this.#resting.get(length);
    const oldest = resting?.[0];
    if (oldest === undefined || this.#nowMs() - oldest.sinceMs < REST_MS) return undefined;
    resting?.shift();
    return oldest.base;
  }

  /** Takes the start of a longer run and frees the rest of it. */
  #split(length: number): number | undefined {
    for (let longer = 2 * length; longer <= this.#capacity; longer *= 2) {
      const base = this.#takeRested(longer);
      if (base === undefined) continue;
      for (let part = longer / 2; part >= length; part /= 2) this.giveBack(base + part, part, true);
      return base;
    }
    return undefined;
  }

  /** @param isRested no reader can still use it. */
  giveBack(base: number, length: number, isRested = false): void {
    const resting = this.#resting.get(length);
    const run = { base, sinceMs: isRested ? -Infinity : this.#nowMs() };
    if (resting === undefined) this.#resting.set(length, [run]);
    else if (isRested) resting.unshift(run);
    else resting.push(run);
  }
}

/** The smallest power of two that is at least this number. */
export function powerOfTwo(least: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}
