/** How long tests wait before they give up. They wait for a condition; the limit only ends what will never come. */
import { availableParallelism, loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** How much longer than on an ordinary machine: emulated processors are slow, and share the host's. */
export const PATIENCE = process.env.KPTS_VM === undefined ? 1 : 5;

/**
 * A limit for an idle machine, extended by the ratio of this one's load to its processors. Call it when the limit is
 * over, because a load that has just begun counts little.
 * @param load processes that want to run, over the last minute.
 */
export function stretched(limitMs: number, load = loadavg()[0] ?? 0, processors = availableParallelism()): number {
  return Math.ceil(limitMs * PATIENCE * Math.max(1, load / processors));
}

/** That the machine has twice as much to do as its processors can, in words; undefined if it has not. */
export function busyWords(load = loadavg()[0] ?? 0, processors = availableParallelism()): string | undefined {
  if (load < 2 * processors) return undefined;
  return `the machine is busy: load ${Math.round(load)} on ${processors} processor${processors === 1 ? "" : "s"}`;
}

export interface UntilOptions {
  /** On an idle machine. @default ten seconds */
  readonly patienceMs?: number;
  /** Between two checks; a slow condition is checked less often. @default 5 ms */
  readonly pauseMs?: number;
  /** What a failure shows, such as a log. */
  readonly evidence?: () => string;
}

/**
 * Waits until the condition holds.
 *
 * @param what is waited for, in words. @throws Error with it and the evidence.
 */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  { patienceMs = 10_000, pauseMs = 5, evidence }: UntilOptions = {},
): Promise<void> {
  const beginMs = performance.now();
  for (;;) {
    const startMs = performance.now();
    if (await condition()) return;
    const nowMs = performance.now();
    const waitedMs = nowMs - beginMs;
    if (waitedMs > stretched(patienceMs)) {
      throw new Error(
        `waited ${Math.round(waitedMs)} ms for ${what}${evidence === undefined ? "" : `; ${evidence()}`}`,
      );
    }
    // A condition that starts programs must leave a slow machine time for what it waits for.
    await sleep(Math.max(pauseMs, 2 * (nowMs - startMs)));
  }
}

/**
 * Acts when the limit is over, which is recomputed by then: a machine that has become busy meanwhile gets more.
 *
 * @param limitNow in milliseconds from the beginning. @returns a function that prevents it.
 */
export function whenLate(limitMs: number, act: () => void, limitNow = () => stretched(limitMs)): () => void {
  const beginMs = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const look = (): void => {
    const leftMs = beginMs + limitNow() - performance.now();
    if (leftMs > 0) timer = setTimeout(look, Math.ceil(leftMs));
    else act();
  };
  look();
  return () => clearTimeout(timer);
}
