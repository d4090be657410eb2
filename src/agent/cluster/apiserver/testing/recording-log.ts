/** A logger that records its lines, for assertions on what an operator would read. */
import type { Facts, Logger } from "../../../../logging/logger.ts";

export interface LogLine {
  readonly level: "info" | "v" | "warn" | "error";
  readonly message: string;
  /** The error's text; empty if there is none. */
  readonly error: string;
  readonly facts: Facts;
}

export interface RecordingLog extends Logger {
  readonly lines: LogLine[];
  /** `message: error` of the error lines. */
  errors(): readonly string[];
  /** `message: error` of the warnings and errors. */
  complaints(): readonly string[];
}

export function recordingLog(): RecordingLog {
  const lines: LogLine[] = [];
  const text = ({ message, error }: LogLine): string => (error === "" ? message : `${message}: ${error}`);
  const loggerWith = (base: Facts): Logger => ({
    info: (message, facts) => void lines.push({ level: "info", message, error: "", facts: { ...base, ...facts } }),
    v: (_level, message, facts) => void lines.push({ level: "v", message, error: "", facts: { ...base, ...facts } }),
    warn: (message, facts) => void lines.push({ level: "warn", message, error: "", facts: { ...base, ...facts } }),
    error(message, error, facts) {
      const cause = error === undefined ? "" : error instanceof Error ? error.message : String(error);
      lines.push({ level: "error", message, error: cause, facts: { ...base, ...facts } });
    },
    with: (facts) => loggerWith({ ...base, ...facts }),
    isVerbose: () => true,
  });
  return {
    ...loggerWith({}),
    lines,
    errors: () => lines.filter(({ level }) => level === "error").map(text),
    complaints: () => lines.filter(({ level }) => level === "error" || level === "warn").map(text),
  };
}
