/**
 * The two looks of a log line, as LogTape formatters. The text look is klog's, the JSON look is that of upstream's zap
 * encoder (reference server.md §2.9). A line always ends with a newline.
 */
import type { LogRecord, TextFormatter } from "@logtape/logtape";
import { quoteText } from "./escape.ts";
import { errorText, formatFact, formatJsonFacts } from "./fact-values.ts";

export type LogFormat = "text" | "json";

/** What {@link createLogger} hands to LogTape: a record that also knows its `-v` level and what was thrown. */
export interface VerboseRecord extends LogRecord {
  /** 0 for lines that are always printed. */
  readonly verbosity: number;
  /** Present on error lines that name a cause. */
  readonly error?: unknown;
}

const SEVERITY: Readonly<Record<LogRecord["level"], string>> = {
  trace: "I",
  debug: "I",
  info: "I",
  warning: "W",
  error: "E",
  fatal: "F",
};

function digits(value: number, width: number): string {
  return value.toString().padStart(width, "0");
}

/** `mmdd hh:mm:ss.uuuuuu` in the zone of the process; `timestamp` is milliseconds since the epoch, fractions kept. */
function klogTime(timestamp: number): string {
  const date = new Date(timestamp);
  const micros = Math.floor((timestamp - Math.floor(timestamp / 1000) * 1000) * 1000);
  const day = `${digits(date.getMonth() + 1, 2)}${digits(date.getDate(), 2)}`;
  const time = `${digits(date.getHours(), 2)}:${digits(date.getMinutes(), 2)}:${digits(date.getSeconds(), 2)}`;
  return `${day} ${time}.${digits(micros, 6)}`;
}

/** The last `parts` segments of a path or URL. */
function pathTail(file: string, parts: number): string {
  return file.split("/").slice(-parts).join("/");
}

function causeOf(record: LogRecord): string | undefined {
  return "error" in record && record.error !== undefined ? errorText(record.error) : undefined;
}

/** Makes the formatter of the text look for a process id. */
export function textFormatter(pid: number): TextFormatter {
  const thread = pid.toString().padStart(7);
  return (record) => {
    const { sourceLocation } = record;
    const caller = sourceLocation === undefined ? "?:0" : `${pathTail(sourceLocation.file, 1)}:${sourceLocation.line}`;
    let line = `${SEVERITY[record.level]}${klogTime(record.timestamp)} ${thread} ${caller}] `;
    line += quoteText(String(record.rawMessage));
    const cause = causeOf(record);
    if (cause !== undefined) line += ` ${formatFact("err", cause)}`;
    for (const key of Object.keys(record.properties)) {
      const value = record.properties[key];
      if (value !== undefined) line += ` ${formatFact(key, value)}`;
    }
    return `${line}\n`;
  };
}

/** The formatter of the JSON look: error lines carry `err` and no `v`. */
export const jsonFormatter: TextFormatter = (record) => {
  const { sourceLocation } = record;
  const caller = sourceLocation === undefined ? "?:0" : `${pathTail(sourceLocation.file, 2)}:${sourceLocation.line}`;
  const isError = record.level === "error" || record.level === "fatal";
  const cause = causeOf(record);
  return `${formatJsonFacts({
    ts: Number(record.timestamp.toFixed(4)),
    caller,
    msg: String(record.rawMessage),
    ...(isError ? {} : { v: "verbosity" in record ? record.verbosity : 0 }),
    ...(cause === undefined ? {} : { err: cause }),
    ...record.properties,
  })}\n`;
};
