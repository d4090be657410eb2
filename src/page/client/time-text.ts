/** A time of day, with its date where that is not today's: in the time zone and the words of the reader. */
export function timeText(ms: number, nowMs = Date.now()): string {
  const [time, now] = [new Date(ms), new Date(nowMs)];
  return time.toDateString() === now.toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}
