/** Finds the place in our source that logs a line. Only printed lines pay for it. */
import { readFileSync } from "node:fs";
import { attempt } from "./attempt.ts";

// An import would read every export of the module, which costs 15 ms at the start.
const { getCallSites } = process.getBuiltinModule("node:util");

export interface SourceLocation {
  /** A path or URL, as the runtime gives it. */
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/**
 * The caller of the function that calls this one; it must call directly.
 *
 * @returns `undefined` if the runtime does not know.
 */
export function callerPlace(): SourceLocation | undefined {
  const [, , frame] = getCallSites(3);
  if (frame === undefined || frame.scriptName === "") return undefined;
  const { scriptName: file, lineNumber: line, columnNumber: column } = frame;
  return { ...(bundledPlace(file, line, column) ?? { file, line }), column };
}

/** File of the bundle → `line:column` → `src/agent/daemon/run-proxy.ts:93`. */
type Places = Readonly<Record<string, Readonly<Record<string, string>>>>;

const TABLE = new URL("./log-places.json", import.meta.url);

let places: Places | undefined;

/**
 * The place in the sources of a call in the bundle.
 *
 * @param file path or URL. @param column of the called function's name, counted from 1.
 * @returns undefined if it is not in the table.
 */
function bundledPlace(
  file: string,
  line: number,
  column: number,
): { readonly file: string; readonly line: number } | undefined {
  places ??= attempt((): Places => JSON.parse(readFileSync(TABLE, "utf8"))) ?? {};
  const place = places[file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1)]?.[`${line}:${column}`];
  const colon = place?.lastIndexOf(":");
  if (place === undefined || colon === undefined) return undefined;
  return { file: place.slice(0, colon), line: Number(place.slice(colon + 1)) };
}
