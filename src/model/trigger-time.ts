/** RFC 3339 times as the last-change-trigger-time annotation has them: reference endpoints.md §6.2. */

const RFC3339 = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;

/**
 * Parses a time with up to nanoseconds. Pure.
 *
 * @returns milliseconds since the epoch, with the rest as a fraction (precise to about 0.25 µs), or `undefined` when the
 * text is not a time.
 */
export function parseRfc3339Ms(text: string): number | undefined {
  const match = RFC3339.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, hour, minute, second, fraction, zone] = match;
  const seconds = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  const offset = zoneOffsetMs(zone ?? "Z");
  // Date.parse rolls the 31st of February over and knows 24:00; both are refused here.
  if (Number.isNaN(seconds) || offset === undefined || new Date(seconds).getUTCDate() !== Number(day)) return undefined;
  return seconds + Number(`0${fraction ?? ""}`) * 1000 - offset;
}

function zoneOffsetMs(zone: string): number | undefined {
  if (zone === "Z") return 0;
  const hours = Number(zone.slice(1, 3));
  const minutes = Number(zone.slice(4, 6));
  if (hours > 24 || minutes > 59) return undefined;
  return (zone.startsWith("-") ? -1 : 1) * (hours * 60 + minutes) * 60_000;
}

/** The second of a moment, for {@link isEarlierText}. Pure. */
export function secondText(timeMs: number): string {
  return new Date(timeMs).toISOString().slice(0, "yyyy-mm-ddThh:mm:ss".length);
}

/**
 * Whether a text is no time after a second, as can be told without parsing it: at the start that is so of nearly all. Pure.
 *
 * @param second as {@link secondText} has it.
 */
export function isEarlierText(text: string, second: string): boolean {
  return text.endsWith("Z") && text < second;
}
