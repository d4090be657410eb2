/** Summaries of repeated measurements. Pure. */

/** The value below which the given part of the sorted samples lies; 0 for no samples. @param part 0 to 1. */
export function quantile(samples: readonly number[], part: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const last = sorted.length - 1;
  const at = Math.min(Math.max(part, 0), 1) * last;
  const low = sorted[Math.floor(at)] ?? 0;
  const high = sorted[Math.ceil(at)] ?? low;
  return low + (high - low) * (at - Math.floor(at));
}

/** The middle sample. */
export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}
