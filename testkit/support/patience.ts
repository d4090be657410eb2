/** How long tests wait before they give up. What they wait for is a condition; the limit only ends what will never come. */
import { availableParallelism, loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** How much longer than on a usual machine: emulated processors are slow, and share the host's. */
export const PATIENCE = process.env.KPTS_VM === undefined ? 1 : 5;

/**
 * A limit for a machine that has nothing else to do, made longer by as much as this one has more to do than processors. To be
 * asked when the limit is over, for a load that has just begun counts little.
 * @param load processes that want to run, of the last minute.
 */
export function stretched(limitMs: number, load = loadavg()[0] ?? 0, processors = availableParallelism()): number {
  return Math.ceil(limitMs * PATIENCE * Math.max(1, load / processors));
}

export interface UntilOptions {
  /** On a machine that has nothing else to do. @default ten seconds */
  readonly patienceMs?: number;
  /** Where the limit is what is tested: neither load nor emulation makes it longer. */
  readonly exactLimitMs?: number | undefined;
  /** Between two looks; a condition that takes long is looked at less often. @default 5 ms */
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
  { patienceMs = 10_000, exactLimitMs, pauseMs = 5, evidence }: UntilOptions = {},
): Promise<void> {
  const beginMs = performance.now();
  for (;;) {
    const startMs = performance.now();
    if (await condition()) return;
    const nowMs = performance.now();
    const waitedMs = nowMs - beginMs;
    if (waitedMs > (exactLimitMs ?? stretched(patienceMs))) {
      throw new Error(
        `waited ${Math.round(waitedMs)} ms for ${what}${evidence === undefined ? "" : `; ${evidence()}`}`,
      );
    }
    // A condition that starts programs must leave a slow machine the time for what it waits for.
    await sleep(Math.max(pauseMs, 2 * (nowMs - startMs)));
  }
}

/**
 * Acts when the limit is over, which is asked for again by then: a machine that has become busy meanwhile gets more.
 *
 * @param limitNow in milliseconds from the beginning. @returns what prevents it.
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
