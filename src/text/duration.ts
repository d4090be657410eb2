/**
 * Durations in Go's syntax (`300ms`, `1.5h`, `2h45m`, bare `0`), held as whole nanoseconds in a bigint.
 * Reference start.md §2.1, configuration.md §3.1.
 */
import { type Parsed, parsed, quoteGo, refused } from "./go-text.ts";

const NS_PER_MS = 1_000_000n;
const NS_PER_SECOND = 1_000_000_000n;
const GREATEST = 2n ** 63n - 1n;

const UNITS: ReadonlyMap<string, bigint> = new Map([
  ["ns", 1n],
  ["us", 1000n],
  ["\u00b5s", 1000n], // micro sign
  ["\u03bcs", 1000n], // Greek letter mu
  ["ms", NS_PER_MS],
  ["s", NS_PER_SECOND],
  ["m", 60n * NS_PER_SECOND],
  ["h", 3600n * NS_PER_SECOND],
]);

/**
 * Reads a duration.
 *
 * @returns nanoseconds, or Go's error text: `time: invalid duration "x"`, `time: missing unit in duration "10"`,
 * `time: unknown unit "x" in duration "10x"`.
 */
export function parseDuration(text: string): Parsed<bigint> {
  const invalid = refused<bigint>(`time: invalid duration ${quoteGo(text)}`);
  const negative = text.startsWith("-");
  let rest = text.replace(/^[+-]/, "");
  if (rest === "0") return parsed(0n);
  if (rest === "") return invalid;
  let total = 0n;
  while (rest !== "") {
    const number = /^([0-9]*)(\.[0-9]*)?/.exec(rest);
    const whole = number?.[1] ?? "";
    const fraction = (number?.[2] ?? "").slice(1);
    if (whole === "" && fraction === "") return invalid;
    rest = rest.slice(number?.[0].length ?? 0);
    const unitText = /^[^.0-9]*/.exec(rest)?.[0] ?? "";
    if (unitText === "") return refused(`time: missing unit in duration ${quoteGo(text)}`);
    rest = rest.slice(unitText.length);
    const unit = UNITS.get(unitText);
    if (unit === undefined) {
      return refused(`time: unknown unit ${quoteGo(unitText)} in duration ${quoteGo(text)}`);
    }
    total += BigInt(whole || "0") * unit;
    if (fraction !== "") total += (BigInt(fraction) * unit) / 10n ** BigInt(fraction.length);
    if (total > GREATEST + (negative ? 1n : 0n)) return invalid;
  }
  return parsed(negative ? -total : total);
}

/** Writes a duration canonically: `0s`, `1.5ms`, `30s`, `1h30m0s`. The inverse of {@link parseDuration}. */
export function formatDuration(nanoseconds: bigint): string {
  if (nanoseconds === 0n) return "0s";
  const sign = nanoseconds < 0n ? "-" : "";
  const size = nanoseconds < 0n ? -nanoseconds : nanoseconds;
  if (size < 1000n) return `${sign}${size}ns`;
  if (size < NS_PER_MS) return `${sign}${decimal(size, 3)}\u00b5s`;
  if (size < NS_PER_SECOND) return `${sign}${decimal(size, 6)}ms`;
  const minutes = size / (60n * NS_PER_SECOND);
  const seconds = `${decimal(size % (60n * NS_PER_SECOND), 9)}s`;
  if (minutes === 0n) return `${sign}${seconds}`;
  if (minutes < 60n) return `${sign}${minutes}m${seconds}`;
  return `${sign}${minutes / 60n}h${minutes % 60n}m${seconds}`;
}

function decimal(value: bigint, places: number): string {
  const scale = 10n ** BigInt(places);
  const fraction = (value % scale).toString().padStart(places, "0").replace(/0+$/, "");
  return fraction === "" ? `${value / scale}` : `${value / scale}.${fraction}`;
}

/** Milliseconds of a duration, with a fraction where it has one. Exact for whole milliseconds. */
export function durationToMs(nanoseconds: bigint): number {
  return Number(nanoseconds / NS_PER_MS) + Number(nanoseconds % NS_PER_MS) / Number(NS_PER_MS);
}

/**
 * Nanoseconds of a number of milliseconds. With {@link durationToMs} it loses nothing for whole milliseconds, and for
 * single nanoseconds up to 49 days, where a double's precision ends.
 */
export function durationFromMs(ms: number): bigint {
  const whole = Math.trunc(ms);
  return BigInt(whole) * NS_PER_MS + BigInt(Math.round((ms - whole) * Number(NS_PER_MS)));
}

/** Canonical text of a number of milliseconds. */
export function formatMs(ms: number): string {
  return formatDuration(durationFromMs(ms));
}
