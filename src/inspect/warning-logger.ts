/** For code that runs without a daemon: each warning or error of the model is told as one line. */
import type { Logger } from "../logging/logger.ts";

/** A logger whose warnings and errors go to `warn`, with their facts as JSON; the rest is left out. */
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
