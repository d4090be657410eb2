/** Which `-v` levels print: one number for the whole program, and file patterns that raise it (`--vmodule`). */
import type { SourceLocation } from "./caller.ts";

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

/** The verbosity in force; it may change while the program runs (`PUT /debug/flags/v`). */
export class Verbosity {
  #level: number;
  readonly #modules: readonly ModuleRule[];

  constructor(level: number, modules: readonly ModuleVerbosity[]) {
    this.#level = level;
    this.#modules = modules.map(compile);
  }

  get level(): number {
    return this.#level;
  }

  set level(level: number) {
    this.#level = level;
  }

  /** Whether a file's pattern may allow what the general level does not; then the caller must be looked up. */
  get hasModules(): boolean {
    return this.#modules.length > 0;
  }

  /** Whether the first pattern that matches the file allows the level. */
  allowsInFile(level: number, location: SourceLocation | undefined): boolean {
    if (location === undefined) return false;
    const file = location.file.replace(EXTENSION, "");
    const rule = this.#modules.find(({ pattern }) => pattern.test(file));
    return rule !== undefined && level <= rule.verbosity;
  }
}
