/** A logger that keeps what a test may check: everything but the verbose lines. */
import { type Facts, type Logger, silentLogger } from "../../src/logging/logger.ts";

export interface LogLine {
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly error?: unknown;
  readonly facts: Facts;
}

/** @returns the logger, which adds to `lines`; so do loggers derived from it with further facts. */
export function recordingLogger(lines: LogLine[]): Logger {
  const log: Logger = {
    ...silentLogger,
    info: (message, facts = {}) => void lines.push({ level: "info", message, facts }),
    warn: (message, facts = {}) => void lines.push({ level: "warn", message, facts }),
    error: (message, error, facts = {}) => void lines.push({ level: "error", message, error, facts }),
    with: () => log,
  };
  return log;
}
