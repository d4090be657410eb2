/**
 * Where in our source a log line was written. Only lines that are printed pay for it: one stack frame, taken as V8's call
 * site, with no stack text made or parsed.
 */

import { bundledPlace } from "./bundled-places.ts";

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
