/** Keeps names and texts from outside from controlling a terminal. */
import { escapeJson, escapeLine } from "../../logging/escape.ts";

/** Escapes control characters, line by line. */
export function safe(text: string): string {
  return text.split("\n").map(escapeLine).join("\n");
}

/** Data as JSON that is safe for a terminal. */
export function jsonText(data: unknown): string {
  return `${JSON.stringify(data, undefined, 2).split("\n").map(escapeJson).join("\n")}\n`;
}
