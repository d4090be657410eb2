/** Sorts the keys of a large map without blocking the event loop: 100,000 keys take 100 ms. */
import { giveTurn, isTurnDue } from "./turns.ts";

/** Keys sorted without a pause: about a millisecond. */
const PORTION = 2_000;

/** As `[...map.keys()].sort()`. Rejects when the signal aborts. */
export async function sortedKeys(map: ReadonlyMap<string, unknown>, signal?: AbortSignal): Promise<readonly string[]> {
  const keys = [...map.keys()];
  let runs: string[][] = [];
  for (let start = 0; start < keys.length; start += PORTION) {
    runs.push(keys.slice(start, start + PORTION).sort());
    if (isTurnDue()) await giveTurn(signal);
  }
  while (runs.length > 1) {
    const merged: string[][] = [];
    for (let index = 0; index < runs.length; index += 2) {
      merged.push(await mergedRun(runs[index] ?? [], runs[index + 1] ?? [], signal));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function mergedRun(
  a: readonly string[],
  b: readonly string[],
  signal: AbortSignal | undefined,
): Promise<string[]> {
  const all: string[] = [];
  let fromA = 0;
  let fromB = 0;
  for (;;) {
    const nextA = a[fromA];
    const nextB = b[fromB];
    if (nextA === undefined && nextB === undefined) return all;
    if (nextA !== undefined && (nextB === undefined || nextA <= nextB)) {
      all.push(nextA);
      fromA += 1;
    } else if (nextB !== undefined) {
      all.push(nextB);
      fromB += 1;
    }
    if (all.length % PORTION === 0 && isTurnDue()) await giveTurn(signal);
  }
}
