/**
 * Logs that a resource cannot be watched: when that starts, when the reason changes, now and then while it lasts, and
 * when it is over.
 */
import type { Clock } from "../../../../async/clock.ts";
import type { Logger } from "../../../../logging/logger.ts";
import type { ApiError, ApiErrorCode } from "../connection/api-error.ts";

const FAILED = "Failed to watch, retrying; everything stays as it is";

const REMIND_AFTER_MS = 300_000;
/** A cut connection and then an expired version: two failures in a row that are not worth logging. */
const MAX_HARMLESS_IN_ROW = 2;

/** Failures that all watches of a server share: one line is logged for all of them, and `/healthz` names each. */
const SHARED: readonly ApiErrorCode[] = ["unreachable", "timeout", "tls", "credentials", "unauthorized"];
/** When any watch of the server last logged each shared failure; cleared when a watch works. */
export type SharedCauses = Map<ApiErrorCode, number>;

export class FailureLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #onProblem: (problem: string | undefined) => void;
  readonly #causes: SharedCauses;
  #standing: { readonly sinceMs: number; saidAtMs: number; reason: string; count: number } | undefined;
  /** Harmless failures since the last success. */
  #harmlessInRow = 0;

  /**
   * @param onProblem called with the resource's current problem; `undefined` if it has none.
   * @param causes shared with the server's other watches.
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

  /** A failure that the protocol allows for and that is handled at once: logged only at verbosity 2. */
  expected(error: ApiError): void {
    this.#log.v(2, "Watch ended", { reason: error.message });
  }

  /** @param isHarmless the failure is ordinary if one of the next attempts works: logged only at verbosity 2. */
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
      this.#log.v(2, "Failed to watch, for the same reason as other resources", { reason: error.message, ...facts });
    } else {
      this.#log.error(FAILED, error, facts);
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
    this.#log.info("Watching again", { failedAttempts: standing.count, afterSeconds: seconds, solves: FAILED });
    this.#onProblem(undefined);
  }

  /** Whether another watch logged this recently; if not, records that this one is about to. */
  #isSaidByOthers(code: ApiErrorCode, nowMs: number): boolean {
    if (!SHARED.includes(code)) return false;
    const saidAtMs = this.#causes.get(code);
    if (saidAtMs !== undefined && nowMs - saidAtMs < REMIND_AFTER_MS) return true;
    this.#causes.set(code, nowMs);
    return false;
  }
}
