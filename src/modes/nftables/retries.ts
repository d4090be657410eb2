/** When rejected service ports are tried again. */
import type { Clock } from "../../async/clock.ts";
import type { SyncInput } from "../../contract/backend.ts";
import { restAfterLook } from "../shared/look-rest.ts";
import type { RefusedPorts } from "../shared/refused-ports.ts";

/** A try takes a comparison of everything: when a rejected port goes, soon after one changes, and otherwise in a twentieth of the time. */
export class Retries {
  readonly #refused: RefusedPorts;
  readonly #clock: Pick<Clock, "monotonicMs" | "sleep">;
  /** The last comparison. */
  #endMs = 0;
  #elapsedMs = 0;
  /** A rejected port has changed since. */
  #isWanted = false;
  watch: { readonly signal: AbortSignal; readonly requestSync: () => void } | undefined;

  constructor(refused: RefusedPorts, clock: Pick<Clock, "monotonicMs" | "sleep">) {
    this.#refused = refused;
    this.#clock = clock;
  }

  /** Everything was just compared. */
  compared(elapsedMs: number): void {
    this.#isWanted = false;
    this.#elapsedMs = elapsedMs;
    this.#endMs = this.#clock.monotonicMs();
  }

  /** Ask only while there are any. */
  areDue({ changedPorts, services }: SyncInput): boolean {
    const changed = [...changedPorts].filter((key) => this.#refused.has(key));
    const isNews = changed.length > 0 && !this.#isWanted;
    this.#isWanted ||= isNews;
    const restMs = restAfterLook(this.#elapsedMs, this.#isWanted ? 0 : Number.POSITIVE_INFINITY);
    const leftMs = this.#endMs + restMs - this.#clock.monotonicMs();
    if (leftMs <= 0 || changed.some((key) => !services.has(key))) return true;
    // Nothing else may change by then.
    if (isNews && this.watch !== undefined) void this.#requestSync(leftMs, this.watch);
    return false;
  }

  async #requestSync(delayMs: number, { signal, requestSync }: NonNullable<Retries["watch"]>): Promise<void> {
    await this.#clock.sleep(delayMs, signal);
    if (!signal.aborted) requestSync();
  }
}
