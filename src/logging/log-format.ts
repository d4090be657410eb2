/**
 * The two formats of a log line: text as klog writes it, and JSON as upstream's zap encoder writes it (reference
 * start.md §2.9). A line always ends with a newline.
 */
import type { SourceLocation } from "./caller.ts";
import { quoteText } from "./escape.ts";
import { errorText, formatFact, formatJsonFacts } from "./fact-values.ts";
import type { Facts } from "./logger.ts";

export type LogFormat = "text" | "json";

export type Severity = "info" | "warning" | "error";

/** The content of a line before it is formatted. */
export interface LogRecord {
  readonly severity: Severity;
  /** The `-v` level; 0 for lines that are always printed. */
  readonly verbosity: number;
  readonly message: string;
  /** Milliseconds since the epoch, fractions allowed. */
  readonly timestampMs: number;
  readonly facts: Facts;
  /** The call that logged the line, if the stack shows it. */
  readonly location: SourceLocation | undefined;
  /** The thrown value, on error lines that have a cause. */
  readonly error: unknown;
}

type LogFormatter = (record: LogRecord) => string;

const LETTER: Readonly<Record<Severity, string>> = { info: "I", warning: "W", error: "E" };

function digits(value: number, width: number): string {
  return value.toString().padStart(width, "0");
}

/** `mmdd hh:mm:ss.uuuuuu` in the process's time zone; `timestamp`: milliseconds since the epoch, with a fraction. */
function klogTime(timestamp: number): string {
  const date = new Date(timestamp);
  const micros = Math.floor((timestamp - Math.floor(timestamp / 1000) * 1000) * 1000);
  const day = `${digits(date.getMonth() + 1, 2)}${digits(date.getDate(), 2)}`;
  const time = `${digits(date.getHours(), 2)}:${digits(date.getMinutes(), 2)}:${digits(date.getSeconds(), 2)}`;
  return `${day} ${time}.${digits(micros, 6)}`;
}

function causeOf({ error }: LogRecord): string | undefined {
  return error === undefined ? undefined : errorText(error);
}

/** `file:line`, with the last `segments` segments of the path. */
function callerText(location: SourceLocation | undefined, segments: number): string {
  return location === undefined ? "?:0" : `${location.file.split("/").slice(-segments).join("/")}:${location.line}`;
}

/** Makes the text formatter for a process ID. */
export function textFormatter(pid: number): LogFormatter {
  const thread = pid.toString().padStart(7);
  return (record) => {
    const { severity, timestampMs, message, location, facts } = record;
    let line = `${LETTER[severity]}${klogTime(timestampMs)} ${thread} ${callerText(location, 1)}] `;
    line += quoteText(message);
    const cause = causeOf(record);
    if (cause !== undefined) line += ` ${formatFact("err", cause)}`;
    for (const [key, value] of Object.entries(facts)) {
      if (value !== undefined) line += ` ${formatFact(key, value)}`;
    }
    return `${line}\n`;
  };
}

/** The JSON formatter: error lines have `err` and no `v`. */
export const jsonFormatter: LogFormatter = (record) => {
  const { severity, verbosity, timestampMs, message, location, facts } = record;
  const cause = causeOf(record);
  return `${formatJsonFacts({
    ts: Number(timestampMs.toFixed(4)),
    caller: callerText(location, 2),
    msg: message,
    ...(severity === "error" ? {} : { v: verbosity }),
    ...(cause === undefined ? {} : { err: cause }),
    ...facts,
  })}\n`;
};
