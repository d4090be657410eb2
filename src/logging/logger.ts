/**
 * The logger that every layer is given. Messages are upstream's constant sentences; everything variable is a fact.
 * Facts print as `key="value"` in the text format and as members in JSON (reference start.md §2.9). The fact `cannot` reports what
 * the node cannot do, and `can` withdraws it: status and page list these limits (`problem-memory.ts`).
 */

/** Named values that go with a message. */
export type Facts = Readonly<Record<string, unknown>>;

export interface Logger {
  /** Always printed. */
  info(message: string, facts?: Facts): void;
  /** Printed when the verbosity (`-v`) is at least `level`. */
  v(level: number, message: string, facts?: Facts): void;
  warn(message: string, facts?: Facts): void;
  /** `error` may be any thrown value; `undefined` if there is no cause to name. */
  error(message: string, error: unknown, facts?: Facts): void;
  /** A logger that adds these facts to every line. */
  with(facts: Facts): Logger;
  /** Whether `v(level, …)` would print: a guard for facts that are costly to make. */
  isVerbose(level: number): boolean;
}

/** A logger that prints nothing. */
export const silentLogger: Logger = {
  info() {},
  v() {},
  warn() {},
  error() {},
  with: () => silentLogger,
  isVerbose: () => false,
};
