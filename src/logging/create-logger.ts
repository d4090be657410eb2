/**
 * The program's logger: klog's levels and look over LogTape, which carries each record to its formatter and stream.
 *
 * Printed lines name the file and line of the call. Finding it costs a few microseconds, so it is done only for lines
 * that are printed and, while `vmodule` patterns are set, for verbose lines that might be.
 */
import { configureSync, getLogger, type LogRecord, type SourceLocation, type Logger as Tape } from "@logtape/logtape";
import { callerOf } from "./caller.ts";
import { jsonFormatter, type LogFormat, textFormatter, type VerboseRecord } from "./log-format.ts";
import type { Facts, Logger } from "./logger.ts";
import { standardStreams, type WriteLog } from "./standard-streams.ts";
import { type ModuleVerbosity, Verbosity } from "./verbosity.ts";
import { createWallClock } from "./wall-clock.ts";

export interface LoggerOptions {
  /** @default "text" */
  readonly format?: LogFormat;
  /** The general `-v` level, 0 or more. @default 0 */
  readonly verbosity?: number;
  /** File patterns with a level of their own; the first match decides. @default none */
  readonly vmodule?: readonly ModuleVerbosity[];
  /** Errors go to standard error and everything else to standard output; otherwise all go to standard error. @default false */
  readonly splitStream?: boolean;
  /** Takes the lines; must write before it returns. @default the process's own streams */
  readonly write?: WriteLog;
  /** Milliseconds since the epoch, fractions allowed. @default the system's clock */
  readonly now?: () => number;
  /** @default process.pid */
  readonly pid?: number;
}

/** The root of all loggers: also the place where the verbosity changes while the program runs. */
export interface RootLogger extends Logger {
  /** The general `-v` level in force. */
  readonly verbosity: number;
  /** Takes effect at once for every logger made from this one. Patterns of `vmodule` stay. */
  setVerbosity(level: number): void;
}

const CATEGORY = "kube-proxy";

interface Core {
  readonly tape: Tape;
  readonly verbosity: Verbosity;
  readonly now: () => number;
}

type Severity = "info" | "warning" | "error";

class StructuredLogger implements RootLogger {
  readonly #core: Core;
  readonly #facts: Facts;

  constructor(core: Core, facts: Facts) {
    this.#core = core;
    this.#facts = facts;
  }

  get verbosity(): number {
    return this.#core.verbosity.level;
  }

  setVerbosity(level: number): void {
    this.#core.verbosity.level = level;
  }

  info(message: string, facts?: Facts): void {
    this.#emit("info", 0, message, facts, callerOf(this.info), undefined);
  }

  v(level: number, message: string, facts?: Facts): void {
    const { verbosity } = this.#core;
    if (level <= verbosity.level) {
      this.#emit("info", level, message, facts, callerOf(this.v), undefined);
    } else if (verbosity.hasModules) {
      const location = callerOf(this.v);
      if (verbosity.allowsInFile(level, location)) this.#emit("info", level, message, facts, location, undefined);
    }
  }

  warn(message: string, facts?: Facts): void {
    this.#emit("warning", 0, message, facts, callerOf(this.warn), undefined);
  }

  error(message: string, error: unknown, facts?: Facts): void {
    this.#emit("error", 0, message, facts, callerOf(this.error), error);
  }

  with(facts: Facts): Logger {
    return new StructuredLogger(this.#core, { ...this.#facts, ...facts });
  }

  isVerbose(level: number): boolean {
    const { verbosity } = this.#core;
    return (
      level <= verbosity.level || (verbosity.hasModules && verbosity.allowsInFile(level, callerOf(this.isVerbose)))
    );
  }

  #emit(
    level: Severity,
    verbosity: number,
    message: string,
    facts: Facts | undefined,
    sourceLocation: SourceLocation | undefined,
    error: unknown,
  ): void {
    // LogTape copies a record that does not name its category, property by property: 4 µs for each line.
    const record: VerboseRecord = {
      category: this.#core.tape.category,
      level,
      verbosity,
      message: [message],
      rawMessage: message,
      timestamp: this.#core.now(),
      properties: facts === undefined ? this.#facts : { ...this.#facts, ...facts },
      ...(sourceLocation === undefined ? {} : { sourceLocation }),
      ...(error === undefined ? {} : { error }),
    };
    this.#core.tape.emit(record);
  }
}

/**
 * Makes the root logger and points LogTape at it. LogTape's configuration belongs to the process: the newest call decides
 * where the lines of all loggers go and what they look like; the verbosity stays with each root.
 */
export function createLogger(options: LoggerOptions = {}): RootLogger {
  const { format = "text", verbosity = 0, vmodule = [], splitStream = false, pid = process.pid } = options;
  const now = options.now ?? createWallClock();
  const formatter = format === "json" ? jsonFormatter : textFormatter(pid);
  const write =
    options.write ??
    standardStreams((count) =>
      formatter({
        category: [CATEGORY],
        level: "warning",
        message: [],
        rawMessage: "Log lines lost because the reader of the log was too slow",
        timestamp: now(),
        properties: { count },
      }),
    );
  const sink = (record: LogRecord): void => {
    const isError = record.level === "error" || record.level === "fatal";
    write(splitStream && !isError ? "stdout" : "stderr", formatter(record));
  };
  configureSync({
    reset: true,
    sinks: { lines: sink },
    loggers: [
      { category: CATEGORY, sinks: ["lines"], lowestLevel: "trace" },
      { category: ["logtape", "meta"], sinks: ["lines"], lowestLevel: "warning" },
    ],
  });
  return new StructuredLogger({ tape: getLogger(CATEGORY), verbosity: new Verbosity(verbosity, vmodule), now }, {});
}
