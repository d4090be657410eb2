/** What became of the last sync, as health, metrics and those who show failures are told. */

import type { SyncFailure, SyncOutcome } from "../../contract/backend.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { IncompleteSyncError, isServing } from "./pending-work.ts";
import type { ProxierOptions } from "./proxier-options.ts";

export const SYNC_FAILED = "Sync failed";

type Services = ReadonlyMap<string, ServicePort>;

export class SyncReport {
  readonly #options: ProxierOptions;
  readonly #inForce = Promise.withResolvers<void>();
  #isFailing = false;
  #failures: readonly SyncFailure[] = [];
  /** A sync was requested after the current one had begun. */
  #isOvertaken = false;

  constructor(options: ProxierOptions) {
    this.#options = options;
  }

  /** Whether the last sync did not bring the kernel to the desired state. */
  get isFailing(): boolean {
    return this.#isFailing;
  }

  get failures(): readonly SyncFailure[] {
    return this.#failures;
  }

  /** Resolves after the first sync whose rules serve. */
  get inForce(): Promise<void> {
    return this.#inForce.promise;
  }

  /** A sync is requested: from now on health expects a successful one. */
  queued(isSyncing: boolean): void {
    const { health, metrics, clock, backend } = this.#options;
    if (isSyncing) this.overtaken();
    health.queuedUpdate(backend.family);
    metrics.setLastQueued(clock.now() / 1000);
  }

  /** The next sync is due for changes that the current one leaves. */
  overtaken(): void {
    this.#isOvertaken = true;
  }

  begun(): void {
    this.#isOvertaken = false;
  }

  /** The kernel is programmed, perhaps except for rejected parts; health only asks whether the node serves. */
  done({ failures, noLocalEndpoints }: SyncOutcome, services: Services): void {
    const { backend, clock, health, log, metrics, onFailures } = this.#options;
    const isComplete = failures.length === 0;
    metrics.setNoLocalEndpoints(noLocalEndpoints.internal, noLocalEndpoints.external);
    if (isComplete && this.#isFailing) {
      this.#isFailing = false;
      log.info("Syncs succeed again", { ipFamily: backend.family, solves: SYNC_FAILED });
    }
    if (isServing(failures, services)) {
      this.#inForce.resolve();
      health.updated(backend.family);
      // Changes that were queued meanwhile may not be in the kernel yet.
      if (this.#isOvertaken) health.queuedUpdate(backend.family);
      metrics.setLastSync(clock.now() / 1000);
    }
    const hadFailures = this.#failures.length > 0;
    this.#failures = failures;
    if (!isComplete || hadFailures) onFailures?.(failures);
  }

  failed(error: unknown, services: Services): void {
    const { backend, health, onFailures } = this.#options;
    this.#isFailing = true;
    const isPartial = error instanceof IncompleteSyncError;
    if (!isPartial) {
      // Nothing could be programmed, or the outcome is unknown: that concerns everything, not one part.
      this.#failures = [{ subject: `${backend.mode} rules`, reason: messageOf(error) }];
      onFailures?.(this.#failures);
    }
    // Failed syncs that were not queued must show, too, or health would stay good forever.
    if (!isPartial || !isServing(this.#failures, services)) health.queuedUpdate(backend.family);
  }
}
