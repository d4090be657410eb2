import { type Logger, silentLogger } from "../../logging/logger.ts";

/** For code without a daemon: gives each warning or error to `warn` as a line, with facts as JSON; drops the rest. */
export function warningLogger(warn: (message: string) => void): Logger {
  const line = (message: string, facts: Readonly<Record<string, unknown>> = {}) =>
    warn([message, ...Object.entries(facts).map(([key, value]) => `${key}=${JSON.stringify(value)}`)].join(" "));
  const log: Logger = {
    ...silentLogger,
    warn: line,
    error: (message, _error, facts) => line(message, facts),
    with: () => log,
  };
  return log;
}
