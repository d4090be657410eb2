/** What follows the rules of a sync: latencies, and health ports of services. */
import type { Clock } from "../async/clock.ts";
import type { Logger } from "../logging/logger.ts";
import type { AppliedChanges, ProxyState } from "../model/proxy-state.ts";
import type { SyncFailure } from "./backend.ts";
import type { ServiceHealthPorts, SyncMetrics } from "./observers.ts";
import { refusedServices } from "./sync-failures.ts";

interface AfterSyncOptions {
  readonly metrics: SyncMetrics;
  readonly serviceHealth: ServiceHealthPorts;
  readonly clock: Clock;
  readonly log: Logger;
  /** The model of the family; live. */
  readonly state: ProxyState;
}

export class AfterSync {
  readonly #options: AfterSyncOptions;

  constructor(options: AfterSyncOptions) {
    this.#options = options;
  }

  /** Latencies from cause to kernel. Those of services with a refused part would be untrue; they are left out. */
  observeProgramming(triggerTimesMs: AppliedChanges["triggerTimesMs"], failures: readonly SyncFailure[]): void {
    const { clock, metrics, log } = this.#options;
    const refused = refusedServices(failures);
    const nowMs = clock.now();
    for (const { service, timesMs } of triggerTimesMs) {
      if (refused.has(service)) continue;
      for (const timeMs of timesMs) {
        // Less than 0 when a clock is wrong or was set meanwhile: a histogram's sum must not go down.
        const seconds = Math.max(0, nowMs - timeMs) / 1000;
        metrics.observeNetworkProgramming(seconds);
        log.v(4, "Network programming", { endpoint: service, elapsed: seconds });
      }
    }
  }

  /** @param changed services, `namespace/name`. */
  async syncServiceHealth(changed: ReadonlySet<string>): Promise<void> {
    const { serviceHealth, state, log } = this.#options;
    try {
      await serviceHealth.syncServices(state.healthCheckNodePorts, changed);
      serviceHealth.syncEndpoints(state.localReadyCounts, changed);
    } catch (error) {
      log.error("Error syncing healthcheck services", error);
    }
  }
}
