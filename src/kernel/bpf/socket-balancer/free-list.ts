/**
 * Which runs of an array are free. A run that was given back is given out again after a rest: a reader in the kernel may still be
 * on its way to it (reference ebpf-operation.md §5.4).
 */

/** Longer than a program runs, however long its processor is taken away meanwhile. */
export const REST_MS = 5_000;

interface Resting {
  readonly base: number;
  readonly sinceMs: number;
}

/** Its length is a power of two. */
export interface Run {
  readonly base: number;
  readonly length: number;
}

/** Runs whose lengths are powers of two, within a capacity that can grow. */
export class FreeList {
  readonly #nowMs: () => number;
  /** By length; the oldest first. */
  readonly #resting = new Map<number, Resting[]>();
  #capacity: number;
  /** From here on nothing was ever given out. */
  #untouched = 0;

  constructor(capacity: number, nowMs: () => number) {
    this.#capacity = capacity;
    this.#nowMs = nowMs;
  }

  /** The array is longer now. */
  grow(capacity: number): void {
    this.#capacity = capacity;
  }

  /**
   * Before anything is taken: these runs are in use. What lies between them rests first.
   * @param longest of the runs that what is free is cut into.
   */
  occupy(runs: readonly Run[], longest: number): void {
    for (const { base, length } of runs.toSorted((one, other) => one.base - other.base)) {
      while (this.#untouched < base) {
        const free = Math.min(longest, 2 ** Math.floor(Math.log2(base - this.#untouched)));
        this.giveBack(this.#untouched, free);
        this.#untouched += free;
      }
      this.#untouched = base + length;
    }
  }

  /** @returns where the run begins, or undefined when there is no room. */
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

  /** The beginning of a longer run; its parts are given back. */
  #split(length: number): number | undefined {
    for (let longer = 2 * length; longer <= this.#capacity; longer *= 2) {
      const base = this.#takeRested(longer);
      if (base === undefined) continue;
      for (let part = longer / 2; part >= length; part /= 2) this.giveBack(base + part, part, true);
      return base;
    }
    return undefined;
  }

  /** @param isRested no reader can be on the way to it. */
  giveBack(base: number, length: number, isRested = false): void {
    const resting = this.#resting.get(length);
    const run = { base, sinceMs: isRested ? -Infinity : this.#nowMs() };
    if (resting === undefined) this.#resting.set(length, [run]);
    else if (isRested) resting.unshift(run);
    else resting.push(run);
  }
}

/** The least power of two that is not less. Pure. */
export function powerOfTwo(least: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}
