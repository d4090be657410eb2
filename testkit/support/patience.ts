/** How long tests wait before they give up. What they wait for is a condition; the limit only ends what will never come. */
import { availableParallelism, loadavg } from "node:os";

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
