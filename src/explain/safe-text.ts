/** What keeps names and texts of others from doing anything to a terminal. Pure. */
import { escapeJson, escapeLine } from "../logging/escape.ts";

/** Escapes what must not reach a terminal, line by line. */
export function safe(text: string): string {
  return text.split("\n").map(escapeLine).join("\n");
}

/** Data as JSON that is safe for a terminal. */
export function jsonText(data: unknown): string {
  return `${JSON.stringify(data, undefined, 2).split("\n").map(escapeJson).join("\n")}\n`;
}
