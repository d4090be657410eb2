/**
 * The program's logger, with klog's levels and format: a formatter makes a line of a record, a stream takes the line.
 *
 * Printed lines name the file and line of the call. Finding these costs a few microseconds, so that happens only for
 * printed lines and, while `vmodule` patterns are set, for verbose lines that may be printed.
 */
import { callerPlace, type SourceLocation } from "./caller.ts";
import { LineBudget } from "./line-budget.ts";
import { jsonFormatter, type LogFormat, type LogRecord, type Severity, textFormatter } from "./log-format.ts";
import type { Facts, Logger } from "./logger.ts";
import { standardStreams, type WriteLog } from "./standard-streams.ts";

export interface LoggerOptions {
  /** @default "text" */
  readonly format?: LogFormat;
  /** The general `-v` level, 0 or more. @default 0 */
  readonly verbosity?: number;
  /** File patterns with a level of their own; the first match decides. @default none */
  readonly vmodule?: readonly ModuleVerbosity[];
  /** Sends errors to standard error and everything else to standard output, instead of all to standard error. @default false */
  readonly splitStream?: boolean;
  /** Takes the lines; must write before it returns. @default the process's own streams */
  readonly write?: WriteLog;
  /** Milliseconds since the epoch, fractions allowed. @default the system's clock */
  readonly now?: () => number;
  /** @default process.pid */
  readonly pid?: number;
  /** Called for every record that is printed, and every one that says what the node can or cannot do. @default nothing */
  readonly onRecord?: (record: LogRecord) => void;
}

/** The root of all loggers, where the verbosity can change while the program runs. */
export interface RootLogger extends Logger {
  readonly verbosity: number;
  /** Takes effect at once for every logger made from this one. Patterns of `vmodule` stay. */
  setVerbosity(level: number): void;
}

/** What all loggers of a root share. */
interface Core {
  readonly print: (record: LogRecord) => void;
  readonly now: () => number;
  readonly modules: readonly ModuleRule[];
  /** May change while the program runs (`PUT /debug/flags/v`). */
  verbosity: number;
}

class StructuredLogger implements RootLogger {
  readonly #core: Core;
  readonly #facts: Facts;

  constructor(core: Core, facts: Facts) {
    this.#core = core;
    this.#facts = facts;
  }

  get verbosity(): number {
    return this.#core.verbosity;
  }

  setVerbosity(level: number): void {
    this.#core.verbosity = level;
  }

  info(message: string, facts?: Facts): void {
    this.#emit("info", 0, message, facts, callerPlace());
  }

  v(level: number, message: string, facts?: Facts): void {
    if (!this.#mayPrint(level)) return;
    const location = callerPlace();
    if (this.#prints(level, location)) this.#emit("info", level, message, facts, location);
  }

  warn(message: string, facts?: Facts): void {
    this.#emit("warning", 0, message, facts, callerPlace());
  }

  error(message: string, error: unknown, facts?: Facts): void {
    this.#emit("error", 0, message, facts, callerPlace(), error);
  }

  with(facts: Facts): Logger {
    return new StructuredLogger(this.#core, { ...this.#facts, ...facts });
  }

  isVerbose(level: number): boolean {
    return level <= this.#core.verbosity || (this.#mayPrint(level) && this.#prints(level, callerPlace()));
  }

  /** Whether to look up the caller: a pattern for its file may allow more than the general level. */
  #mayPrint(level: number): boolean {
    return level <= this.#core.verbosity || this.#core.modules.length > 0;
  }

  /** The first pattern that matches the file decides. */
  #prints(level: number, location: SourceLocation | undefined): boolean {
    const { verbosity, modules } = this.#core;
    if (level <= verbosity || location === undefined) return level <= verbosity;
    const file = location.file.replace(EXTENSION, "");
    return level <= (modules.find(({ pattern }) => pattern.test(file))?.verbosity ?? verbosity);
  }

  #emit(
    severity: Severity,
    verbosity: number,
    message: string,
    facts: Facts | undefined,
    location: SourceLocation | undefined,
    error?: unknown,
  ): void {
    this.#core.print({
      severity,
      verbosity,
      message,
      timestampMs: this.#core.now(),
      facts: facts === undefined ? this.#facts : { ...this.#facts, ...facts },
      location,
      error,
    });
  }
}

/** Makes a root logger. */
export function createLogger(options: LoggerOptions = {}): RootLogger {
  const { format = "text", verbosity = 0, vmodule = [], splitStream = false, pid = process.pid } = options;
  const now = options.now ?? createWallClock();
  const formatter = format === "json" ? jsonFormatter : textFormatter(pid);
  const write =
    options.write ??
    standardStreams((count) =>
      formatter({
        severity: "warning",
        verbosity: 0,
        message: "Log lines lost because the reader of the log was too slow",
        timestampMs: now(),
        facts: { count },
        location: undefined,
        error: undefined,
      }),
    );
  const budget = new LineBudget();
  const print = (record: LogRecord): void => {
    const printed = budget.take(record);
    if (printed.includes(record) || "cannot" in record.facts || "can" in record.facts) options.onRecord?.(record);
    for (const one of printed) {
      write(splitStream && one.severity !== "error" ? "stdout" : "stderr", formatter(one));
    }
  };
  return new StructuredLogger({ print, now, modules: vmodule.map(compile), verbosity }, {});
}

/**
 * Makes a clock that returns milliseconds since the epoch with a fraction. It runs on the monotonic clock and is reset
 * when it is more than a millisecond off the system's, so that it follows clock steps.
 */
function createWallClock(): () => number {
  let offset = Date.now() - performance.now();
  return () => {
    const coarse = Date.now();
    const fine = offset + performance.now();
    if (Math.abs(fine - coarse) <= 1) return fine;
    offset = coarse - performance.now();
    return coarse;
  };
}

/** One `pattern=N` of `--vmodule`, as the configuration spells it (`logging.vmodule[]`). */
export interface ModuleVerbosity {
  /** Glob (`*`, `?`) over the file's name without extension; with a `/`, over the end of its path. */
  readonly filePattern: string;
  readonly verbosity: number;
}

interface ModuleRule {
  readonly pattern: RegExp;
  readonly verbosity: number;
}

const EXTENSION = /\.[cm]?[jt]s$/;

function compile(module: ModuleVerbosity): ModuleRule {
  const glob = module.filePattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  const body = glob.replaceAll("*", "[^/]*").replaceAll("?", "[^/]");
  return { pattern: new RegExp(`(?:^|/)${body}$`), verbosity: module.verbosity };
}
