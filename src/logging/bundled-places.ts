/**
 * Where in the sources the log lines of a bundle were written: `scripts/bundle.mjs` leaves a table beside it. A program that
 * runs as modules has none, and needs none.
 */
import { readFileSync } from "node:fs";

/** File of the bundle → `line:column` → `src/daemon/run-proxy.ts:93`. */
type Places = Readonly<Record<string, Readonly<Record<string, string>>>>;

const TABLE = new URL("./log-places.json", import.meta.url);

let places: Places | undefined;

function read(): Places {
  try {
    return JSON.parse(readFileSync(TABLE, "utf8"));
  } catch {
    return {};
  }
}

/**
 * The place in the sources of a call in a bundle.
 *
 * @param file path or URL. @param column of the called function's name, counted from 1.
 * @returns undefined when the table does not have it.
 */
export function bundledPlace(
  file: string,
  line: number,
  column: number,
): { readonly file: string; readonly line: number } | undefined {
  places ??= read();
  const place = places[file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1)]?.[`${line}:${column}`];
  const colon = place?.lastIndexOf(":");
  if (place === undefined || colon === undefined) return undefined;
  return { file: place.slice(0, colon), line: Number(place.slice(colon + 1)) };
}
