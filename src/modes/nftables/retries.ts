/** When rejected service ports are tried again. */
import type { Clock } from "../../async/clock.ts";
import type { SyncInput } from "../../contract/backend.ts";
import { restAfterLook } from "../shared/look-rest.ts";
import type { RefusedPorts } from "../shared/refused-ports.ts";

type Changes = Pick<SyncInput, "changedPorts"> & { readonly services: Pick<SyncInput["services"], "has"> };

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
  areDue({ changedPorts, services }: Changes): boolean {
    const changed = [...changedPorts].filter((key) => this.#refused.has(key));
    const isNews = changed.length > 0 && !this.#isWanted;
    this.#isWanted ||= isNews;
    const leftMs = this.#leftMs();
    if (leftMs <= 0 || changed.some((key) => !services.has(key))) return true;
    // Nothing else may change by then.
    if (isNews && this.watch !== undefined) void this.#requestSync(this.watch);
    return false;
  }

  #leftMs(): number {
    const restMs = restAfterLook(this.#elapsedMs, this.#isWanted ? 0 : Number.POSITIVE_INFINITY);
    return this.#endMs + restMs - this.#clock.monotonicMs();
  }

  async #requestSync({ signal, requestSync }: NonNullable<Retries["watch"]>): Promise<void> {
    // A timer may fire a millisecond early, and a sync that comes too early is no try.
    while (this.#isWanted && !signal.aborted && this.#leftMs() > 0) await this.#clock.sleep(this.#leftMs(), signal);
    if (this.#isWanted && !signal.aborted) requestSync();
  }
}
