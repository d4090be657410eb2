/** The warnings and errors that the log has had, for people who look at a running process: each text once, the newest first. */
import type { LogRecord } from "./log-format.ts";

/** Texts beyond these push out the oldest. */
const KEPT = 50;
/** Longer texts are cut. */
const MAX_TEXT = 500;

export interface LoggedProblem {
  readonly severity: "warning" | "error";
  readonly message: string;
  /** Facts and the error, as `name=value`. */
  readonly details: string;
  readonly count: number;
  /** Unix milliseconds. */
  readonly firstMs: number;
  readonly lastMs: number;
}

export class ProblemMemory {
  /** By severity and text; the one that was seen last is the last. */
  readonly #problems = new Map<string, LoggedProblem>();

  /** The newest first. */
  get problems(): readonly LoggedProblem[] {
    return [...this.#problems.values()].reverse();
  }

  note({ severity, message, facts, error, timestampMs }: LogRecord): void {
    if (severity === "info") return;
    const details = detailsOf(facts, error);
    const key = `${severity} ${message} ${details}`;
    const known = this.#problems.get(key);
    this.#problems.delete(key);
    this.#problems.set(key, {
      severity,
      message,
      details,
      count: (known?.count ?? 0) + 1,
      firstMs: known?.firstMs ?? timestampMs,
      lastMs: timestampMs,
    });
    if (this.#problems.size <= KEPT) return;
    for (const oldest of this.#problems.keys()) {
      this.#problems.delete(oldest);
      break;
    }
  }
}

function detailsOf(facts: LogRecord["facts"], error: unknown): string {
  const all = Object.entries({ ...facts, ...(error === undefined ? {} : { err: errorText(error) }) });
  const text = all
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text;
}

function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
