/**
 * The warnings and errors of the log, for people who look at a running process: each text once, newest first. Also what the node
 * cannot do: a line of any severity reports it with the fact `cannot`, and a later one withdraws it with the fact `can`. The fact
 * `solves` names the message of a problem that is over.
 */
import type { LogRecord } from "./log-format.ts";
import type { Facts } from "./logger.ts";
import { messageOf } from "./message-of.ts";

/** Beyond these, a new text pushes out the oldest. */
const KEPT = 50;
const MAX_TEXT = 500;

export interface LoggedProblem {
  readonly severity: "warning" | "error";
  readonly message: string;
  /** Facts and the error, as `name=value`. */
  readonly details: string;
  /** The Service or service port that it is about, as in the details. */
  readonly service?: string;
  readonly count: number;
  /** Unix milliseconds. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** What the node could not do then ({@link NodeLimit}). */
  readonly limit?: string;
  /** When it was over; absent: it is not, or it is not known. */
  readonly overMs?: number;
}

export interface NodeLimit {
  readonly what: string;
  readonly why: string;
}

/** Only a bug of ours could cause more. */
const KEPT_LIMITS = 50;

export class ProblemMemory {
  /** By severity and text; the most recent comes last. */
  readonly #problems = new Map<string, LoggedProblem>();
  /** Of each problem, those that are no lists or objects. */
  readonly #facts = new Map<string, Facts>();

  readonly #limits = new Map<string, NodeLimit>();

  /** What the node cannot do now, in the order of discovery. */
  get limits(): readonly NodeLimit[] {
    return [...this.#limits.values()];
  }

  /** Newest first. */
  get problems(): readonly LoggedProblem[] {
    return [...this.#problems.values()].reverse();
  }

  note(record: LogRecord): void {
    const { severity, message, error, timestampMs } = record;
    const { cannot, can, solves, ...facts } = record.facts;
    const limit = this.#noteLimit(record, cannot, can);
    if (solves !== undefined) this.#solve(solves, facts, timestampMs);
    if (severity === "info") return;
    const details = detailsOf(facts, error);
    const service = facts.service ?? facts.servicePort;
    const key = `${severity} ${message} ${details}`;
    const known = this.#problems.get(key);
    this.#problems.delete(key);
    this.#facts.set(key, Object.fromEntries(Object.entries(facts).filter(([, value]) => typeof value !== "object")));
    this.#problems.set(key, {
      severity,
      message,
      details,
      count: (known?.count ?? 0) + 1,
      firstMs: known?.firstMs ?? timestampMs,
      lastMs: timestampMs,
      ...(typeof service === "string" && { service }),
      ...(limit !== undefined && { limit }),
    });
    if (this.#problems.size <= KEPT) return;
    for (const oldest of this.#problems.keys()) {
      this.#problems.delete(oldest);
      this.#facts.delete(oldest);
      break;
    }
  }

  /** Ends what was reported with that message, and with the same facts as far as both have them. */
  #solve(message: unknown, facts: Facts, overMs: number): void {
    for (const [key, problem] of this.#problems) {
      const own = Object.entries(this.#facts.get(key) ?? {});
      const isSame = own.every(([name, value]) => !(name in facts) || facts[name] === value);
      if (problem.message === message && isSame) this.#problems.set(key, { overMs, ...problem });
    }
  }

  /** @returns what the node cannot do from now on, if the line says so. */
  #noteLimit(record: LogRecord, cannot: unknown, can: unknown): string | undefined {
    const { message, facts, error, timestampMs } = record;
    const { ipFamily, why } = facts;
    const named = (what: unknown): string => `${what}${typeof ipFamily === "string" ? ` (${ipFamily})` : ""}`;
    if (can !== undefined) {
      this.#limits.delete(named(can));
      for (const [key, problem] of this.#problems)
        if (problem.limit === named(can)) this.#problems.set(key, { overMs: timestampMs, ...problem });
    }
    if (cannot === undefined) return undefined;
    const what = named(cannot);
    const reason = typeof why === "string" ? why : error === undefined ? message : messageOf(error);
    if (this.#limits.size < KEPT_LIMITS || this.#limits.has(what)) this.#limits.set(what, { what, why: cut(reason) });
    return what;
  }
}

function detailsOf(facts: LogRecord["facts"], error: unknown): string {
  const all = Object.entries({ ...facts, ...(error === undefined ? {} : { err: messageOf(error) }) });
  const text = all
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
  return cut(text);
}

function cut(text: string): string {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text;
}
