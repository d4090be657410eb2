/** The texts of validation errors, in the shape that Kubernetes gives them. Reference configuration.md §3.5. */
import { formatMs } from "../../text/duration.ts";
import { quoteGo } from "../../text/go-text.ts";

type ShownValue = string | number | readonly string[] | Readonly<Record<string, boolean>>;

/** `path: Invalid value: v: detail`; texts are quoted, numbers bare, lists and maps JSON. */
export function invalid(path: string, value: ShownValue, detail: string): string {
  return `${path}: Invalid value: ${show(value)}: ${detail}`;
}

/** `path: Duplicate value: v`. */
export function duplicate(path: string, value: ShownValue): string {
  return `${path}: Duplicate value: ${show(value)}`;
}

/** `path: Forbidden: detail`. */
export function forbidden(path: string, detail: string): string {
  return `${path}: Forbidden: ${detail}`;
}

/** `path: Required value: detail`. */
export function required(path: string, detail: string): string {
  return `${path}: Required value: ${detail}`;
}

/** `path: Unsupported value: "x": supported values: "a", "b"`. */
export function unsupported(path: string, value: string, supported: readonly string[]): string {
  return `${path}: Unsupported value: ${quoteGo(value)}: supported values: ${supported.map(quoteGo).join(", ")}`;
}

function show(value: ShownValue): string {
  if (typeof value === "string") return quoteGo(value);
  return typeof value === "number" ? `${value}` : JSON.stringify(value);
}

/** The first segment of every path. */
export const CONFIG_ROOT = "KubeProxyConfiguration";

const NOT_NEGATIVE = "must be greater than or equal to 0";

/** The error about a negative number; none for others. */
export function negative(path: string, value: number): readonly string[] {
  return value < 0 ? [invalid(path, value, NOT_NEGATIVE)] : [];
}

/** The error about a negative time, in milliseconds; none for others. */
export function negativeMs(path: string, ms: number): readonly string[] {
  return ms < 0 ? [invalid(path, formatMs(ms), NOT_NEGATIVE)] : [];
}

/** The error about a time, in milliseconds, that is not positive; none for others. */
export function notPositive(path: string, ms: number): readonly string[] {
  return ms <= 0 ? [invalid(path, formatMs(ms), "must be greater than 0")] : [];
}
