/**
 * What all watches of a server meet alike: nothing answers there, or it does not know this program. Four lists begin together, and
 * one line says it for all; `/healthz` names each of them.
 */
import type { ApiErrorCode } from "../connection/api-error.ts";

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
