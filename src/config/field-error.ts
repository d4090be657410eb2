/** The texts of validation errors, in the shape that Kubernetes gives them. Pure. Reference server.md §3.5. */
import { quoteGo } from "./go-text.ts";

type ShownValue = string | number | readonly string[] | Readonly<Record<string, boolean>>;

/** `path: Invalid value: v: detail`; texts are quoted, numbers bare, lists and maps JSON. */
export function invalid(path: string, value: ShownValue, detail: string): string {
  return `${path}: Invalid value: ${show(value)}: ${detail}`;
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
