/**
 * Where in our source a log line was written. Only lines that are printed pay for it: one stack frame, taken as V8's call
 * site, with no stack text made or parsed.
 */
import { readFileSync } from "node:fs";

/** A place in a source file. */
export interface SourceLocation {
  /** As the runtime names it: path or URL. */
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

let topFrame: NodeJS.CallSite | undefined;

function keepTopFrame(_error: Error, frames: NodeJS.CallSite[]): string {
  topFrame = frames[0];
  return "";
}

/**
 * The caller of `callee`, which must be on the stack.
 *
 * @returns `undefined` when the runtime does not tell.
 */
export function callerOf(callee: (...args: never[]) => unknown): SourceLocation | undefined {
  const { stackTraceLimit, prepareStackTrace } = Error;
  const holder: { stack?: string } = {};
  try {
    Error.stackTraceLimit = 1;
    Error.prepareStackTrace = keepTopFrame;
    Error.captureStackTrace(holder, callee);
    void holder.stack;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
    Error.prepareStackTrace = prepareStackTrace;
  }
  const frame = topFrame;
  topFrame = undefined;
  const file = frame?.getFileName();
  if (frame === undefined || file === null || file === undefined) return undefined;
  const line = frame.getLineNumber() ?? 0;
  const column = frame.getColumnNumber() ?? 0;
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
