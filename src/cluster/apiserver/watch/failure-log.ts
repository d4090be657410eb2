/**
 * Says that a resource cannot be watched: once when it begins, again when the reason changes, now and then while it
 * lasts, and when it is over.
 */
import type { Clock } from "../../../async/clock.ts";
import type { Logger } from "../../../logging/logger.ts";
import type { ApiError, ApiErrorCode } from "../connection/api-error.ts";

const REMIND_AFTER_MS = 300_000;
/** A cut connection, and the history lost meanwhile, are nothing to speak of. */
const MAX_HARMLESS_IN_ROW = 2;

/** Called with the problem that a resource has now; `undefined` when it has none. */
export type OnProblem = (problem: string | undefined) => void;

export class FailureLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #onProblem: OnProblem;
  readonly #causes: SharedCauses;
  #standing: { readonly sinceMs: number; saidAtMs: number; reason: string; count: number } | undefined;
  /** Harmless failures that nothing good has followed yet. */
  #harmlessInRow = 0;

  /** @param causes what the server's other watches have said already. */
  constructor(log: Logger, clock: Clock, onProblem: OnProblem, causes = new SharedCauses()) {
    this.#causes = causes;
    this.#log = log;
    this.#clock = clock;
    this.#onProblem = onProblem;
  }

  /** A failure that the protocol provides for, and that is dealt with at once: only said at verbosity 2. */
  expected(error: ApiError): void {
    this.#log.v(2, "Watch ended", { reason: error.message });
  }

  /** @param isHarmless when this is ordinary as long as one of the next attempts works: only said at verbosity 2. */
  failed(error: ApiError, isHarmless: boolean): void {
    const nowMs = this.#clock.monotonicMs();
    if (this.#standing === undefined && isHarmless && this.#harmlessInRow < MAX_HARMLESS_IN_ROW) {
      this.#harmlessInRow++;
      this.expected(error);
      return;
    }
    const reason = `${error.code} ${error.facts.status ?? ""}`;
    this.#standing ??= { sinceMs: nowMs, saidAtMs: Number.NEGATIVE_INFINITY, reason, count: 0 };
    const standing = this.#standing;
    standing.count++;
    if (standing.reason === reason && nowMs - standing.saidAtMs < REMIND_AFTER_MS) {
      this.#log.v(4, "Failed to watch", { reason: error.message, attempts: standing.count });
      return;
    }
    standing.reason = reason;
    standing.saidAtMs = nowMs;
    const facts = standing.count === 1 ? {} : { attempts: standing.count };
    if (this.#causes.isKnown(error.code, nowMs, REMIND_AFTER_MS)) {
      this.#log.v(2, "Failed to watch, for the same reason as others", { reason: error.message, ...facts });
    } else {
      this.#log.error("Failed to watch, retrying; everything stays as it is", error, facts);
    }
    this.#onProblem(error.message);
  }

  succeeded(): void {
    this.#harmlessInRow = 0;
    const standing = this.#standing;
    if (standing === undefined) return;
    this.#standing = undefined;
    this.#causes.clear();
    const seconds = Math.round((this.#clock.monotonicMs() - standing.sinceMs) / 1000);
    this.#log.info("Watching again", { failedAttempts: standing.count, afterSeconds: seconds });
    this.#onProblem(undefined);
  }
}

/** What all watches of a server meet alike: four lists begin together, and one line says it for all; `/healthz` names each of them. */
const SHARED: readonly ApiErrorCode[] = ["unreachable", "timeout", "tls", "credentials", "unauthorized"];

/** Shared by all watches of the server. */
export class SharedCauses {
  readonly #saidAtMs = new Map<ApiErrorCode, number>();

  /** Notes that a watch is about to say so. @returns whether another one has, less than this long ago. */
  isKnown(code: ApiErrorCode, nowMs: number, forMs: number): boolean {
    if (!SHARED.includes(code)) return false;
    const saidAtMs = this.#saidAtMs.get(code);
    if (saidAtMs !== undefined && nowMs - saidAtMs < forMs) return true;
    this.#saidAtMs.set(code, nowMs);
    return false;
  }

  /** The server works for one of the watches: the next failure is logged again. */
  clear(): void {
    this.#saidAtMs.clear();
  }
}
