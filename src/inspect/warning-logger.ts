import type { Logger } from "../logging/logger.ts";

/** A logger for code without a daemon: passes warnings and errors to `warn` as one line, with facts as JSON; drops the rest. */
export function warningLogger(warn: (message: string) => void): Logger {
  const line = (message: string, facts: Readonly<Record<string, unknown>> = {}) =>
    warn([message, ...Object.entries(facts).map(([key, value]) => `${key}=${JSON.stringify(value)}`)].join(" "));
  const log: Logger = {
    info() {},
    v() {},
    warn: line,
    error: (message, _error, facts) => line(message, facts),
    with: () => log,
    isVerbose: () => false,
  };
  return log;
}
