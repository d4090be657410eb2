/** What many paired rounds say of a ratio, and how surely. Pure. */
import { median, type Verdict } from "./table.ts";

export interface Estimate {
  readonly median: number;
  /** The median of all rounds that there could be lies between these, with a probability of 95 %. */
  readonly low: number;
  readonly high: number;
}

/** Of the standard normal distribution: 95 % lie within. */
const STANDARD_ERRORS = 1.96;

/**
 * The middle of the samples, with the interval that the order of the samples gives (of the sign test): it holds for any distribution,
 * also where some rounds were disturbed. With fewer than 6 samples it is all of them, and less sure.
 */
export function estimate(samples: readonly number[]): Estimate {
  const sorted = [...samples].sort((a, b) => a - b);
  const last = sorted.length - 1;
  const low = Math.max(0, Math.floor((sorted.length - STANDARD_ERRORS * Math.sqrt(sorted.length)) / 2) - 1);
  const at = (index: number): number => sorted[Math.min(Math.max(index, 0), last)] ?? 0;
  return { median: median(samples), low: at(low), high: at(last - low) };
}

/** `1.012 (1.008 to 1.017)` */
export function estimateText({ median, low, high }: Estimate): string {
  return `${median.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`;
}

/** The median decides; where the limit lies within the interval, it says that this run does not settle it. */
export function judgeEstimate(what: string, found: Estimate, limit: number): Verdict {
  const isOpen = found.low <= limit && limit < found.high;
  const doubt = isOpen ? ", which this run does not settle" : "";
  return { passed: found.median <= limit, text: `${what}: ${estimateText(found)}, at most ${limit} wanted${doubt}` };
}

/** All numbers below `length`, in an order that differs from call to call and is the same in every run. */
export function permutations(seed = 1): (length: number) => readonly number[] {
  let state = seed;
  // Marsaglia's xorshift of 32 bits.
  const next = (below: number): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
  return (length) => {
    const order = Array.from({ length }, (_, index) => index);
    for (let end = length; end > 1; end--) {
      const [at, last] = [next(end), end - 1];
      [order[at], order[last]] = [order[last] ?? 0, order[at] ?? 0];
    }
    return order;
  };
}
