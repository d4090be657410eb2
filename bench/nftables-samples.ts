/** Repeated measurements and their summary. */
import type { Spread } from "./nftables-figures.ts";
import { quantile } from "./statistics.ts";

export function spread(samples: readonly number[]): Spread {
  return { count: samples.length, p50: quantile(samples, 0.5), p99: quantile(samples, 0.99) };
}

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}
