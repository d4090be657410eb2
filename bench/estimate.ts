/** What many paired rounds say about a ratio, and how reliably. */
import { median, type Verdict } from "./table.ts";

export interface Estimate {
  readonly median: number;
  /** With a probability of 95 %, the true median lies between these. */
  readonly low: number;
  readonly high: number;
}

/** Of the standard normal distribution: 95 % lie within. */
const STANDARD_ERRORS = 1.96;

/**
 * The median of the samples, with the interval from their order (of the sign test): it holds for any distribution, even
 * if some rounds were disturbed. With fewer than 6 samples it spans all of them, and is less certain.
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

/** The median decides; if the limit lies within the interval, says that this run does not settle it. */
export function judgeEstimate(what: string, found: Estimate, limit: number): Verdict {
  const isOpen = found.low <= limit && limit < found.high;
  const doubt = isOpen ? ", which this run does not settle" : "";
  return { passed: found.median <= limit, text: `${what}: ${estimateText(found)}, at most ${limit} wanted${doubt}` };
}

/** All numbers below `length`, in an order that varies from call to call but is the same in every run. */
export function permutations(seed = 1): (length: number) => readonly number[] {
  let state = seed;
  // Marsaglia's 32-bit xorshift.
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
