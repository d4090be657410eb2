/** Where in our source a log line was written. Only lines that are printed pay for it. */
import { readFileSync } from "node:fs";

// An import would read every export of the module, which costs a start 15 ms.
const { getCallSites } = process.getBuiltinModule("node:util");

export interface SourceLocation {
  /** As the runtime names it: path or URL. */
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/**
 * The caller of the function that asks this, which must do so itself.
 *
 * @returns `undefined` when the runtime does not tell.
 */
export function callerPlace(): SourceLocation | undefined {
  const [, , frame] = getCallSites(3);
  if (frame === undefined || frame.scriptName === "") return undefined;
  const { scriptName: file, lineNumber: line, columnNumber: column } = frame;
  return { ...(bundledPlace(file, line, column) ?? { file, line }), column };
}

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
function bundledPlace(
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
