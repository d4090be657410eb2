/** Times as Go prints them in JSON. */

/** What Go prints for a time that was never set. */
export const ZERO_TIME = "0001-01-01T00:00:00Z";

const MINUTE_MS = 60_000;

/**
 * RFC 3339 in the process's time zone, the fraction without trailing zeroes (reference health.md §15).
 *
 * @param unixMs milliseconds since the epoch; a fraction is kept to the microsecond.
 */
export function formatRfc3339(unixMs: number): string {
  const micros = Math.round(unixMs * 1000);
  const offsetMinutes = -new Date(micros / 1000).getTimezoneOffset();
  const seconds = new Date(Math.floor(micros / 1e6) * 1000 + offsetMinutes * MINUTE_MS).toISOString().slice(0, 19);
  const fraction = (((micros % 1e6) + 1e6) % 1e6).toString().padStart(6, "0").replace(/0+$/, "");
  return `${seconds}${fraction === "" ? "" : `.${fraction}`}${formatOffset(offsetMinutes)}`;
}

function formatOffset(minutes: number): string {
  if (minutes === 0) return "Z";
  const sign = minutes < 0 ? "-" : "+";
  const size = Math.abs(minutes);
  return `${sign}${`${Math.floor(size / 60)}`.padStart(2, "0")}:${`${size % 60}`.padStart(2, "0")}`;
}
