/** A time of day, with its date where that is not today's: in the time zone and the words of the reader. */
export function timeText(ms: number, nowMs = Date.now()): string {
  const [time, now] = [new Date(ms), new Date(nowMs)];
  return time.toDateString() === now.toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

/** Milliseconds with the digits that say something: `0.04`, `1.2`, `250`. */
export function msText(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}
