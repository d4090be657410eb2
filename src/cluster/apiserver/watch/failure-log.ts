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

/** What all watches of a server meet alike: four lists begin together, and one line says it for all; `/healthz` names each of them. */
const SHARED: readonly ApiErrorCode[] = ["unreachable", "timeout", "tls", "credentials", "unauthorized"];
/** When one of the watches of a server last said so; nothing when it works for one of them. */
export type SharedCauses = Map<ApiErrorCode, number>;

export class FailureLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #onProblem: (problem: string | undefined) => void;
  readonly #causes: SharedCauses;
  #standing: { readonly sinceMs: number; saidAtMs: number; reason: string; count: number } | undefined;
  /** Harmless failures that nothing good has followed yet. */
  #harmlessInRow = 0;

  /**
   * @param onProblem called with the problem that the resource has now; `undefined` when it has none.
   * @param causes what the server's other watches have said already.
   */
  constructor(
    log: Logger,
    clock: Clock,
    onProblem: (problem: string | undefined) => void,
    causes: SharedCauses = new Map(),
  ) {
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
    if (this.#isSaidByOthers(error.code, nowMs)) {
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

  /** Whether another watch has said so a short time ago; else this one is about to. */
  #isSaidByOthers(code: ApiErrorCode, nowMs: number): boolean {
    if (!SHARED.includes(code)) return false;
    const saidAtMs = this.#causes.get(code);
    if (saidAtMs !== undefined && nowMs - saidAtMs < REMIND_AFTER_MS) return true;
    this.#causes.set(code, nowMs);
    return false;
  }
}
