/** A logger that keeps its error lines. */
import { type Logger, silentLogger } from "../../../logging/logger.ts";

export interface MemoryLog extends Logger {
  /** `message: error` of each error line. */
  readonly errors: string[];
}

export function memoryLog(): MemoryLog {
  const errors: string[] = [];
  const log: MemoryLog = {
    ...silentLogger,
    errors,
    error(message, error) {
      errors.push(`${message}: ${error instanceof Error ? error.message : String(error)}`);
    },
    with: () => log,
  };
  return log;
}
