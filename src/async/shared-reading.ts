/** What is costly to read: read once for all who ask at about the same time, and never twice at a time. */
import type { Clock } from "./clock.ts";

/**
 * @param read rejections reach all who wait, and are not kept. @param freshMs the age up to which a reading is given again.
 * @returns a function that gives the reading; a caller may want another age.
 */
export function sharedReading<T>(
  read: () => Promise<T>,
  freshMs: number,
  clock: Pick<Clock, "monotonicMs">,
): (freshMs?: number) => Promise<T> {
  let last: { readonly reading: Promise<T>; madeMs: number } | undefined;
  return (wantedMs = freshMs) => {
    if (last !== undefined && clock.monotonicMs() - last.madeMs < wantedMs) return last.reading;
    // While it is being made, it counts as new.
    const made = { reading: read(), madeMs: Number.POSITIVE_INFINITY };
    last = made;
    made.reading.then(
      () => {
        made.madeMs = clock.monotonicMs();
      },
      () => {
        if (last === made) last = undefined;
      },
    );
    return made.reading;
  };
}
