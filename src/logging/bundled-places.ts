/**
 * Where in the sources the log lines of a bundle were written: `scripts/bundle.mjs` leaves a table beside it. A program that
 * runs as modules has none, and needs none.
 */
import { readFileSync } from "node:fs";

/** File of the bundle → line → `src/daemon/run-proxy.ts:93`. */
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
 * The place in the sources of a line of a bundle.
 *
 * @param file path or URL. @returns undefined when the table does not have it.
 */
export function bundledPlace(file: string, line: number): { readonly file: string; readonly line: number } | undefined {
  places ??= read();
  const place = places[file.slice(file.lastIndexOf("/") + 1)]?.[line];
  const colon = place?.lastIndexOf(":");
  if (place === undefined || colon === undefined) return undefined;
  return { file: place.slice(0, colon), line: Number(place.slice(colon + 1)) };
}
