/** What follows the rules of a sync: latencies, and health ports of services. */
import type { AppliedChanges, ProxyState } from "../model/proxy-state.ts";
import { serviceOfKey } from "../model/service-port-name.ts";
import type { SyncFailure } from "./backend.ts";
import type { ProxierOptions } from "./proxier-options.ts";

interface AfterSyncOptions extends Pick<ProxierOptions, "metrics" | "serviceHealth" | "clock" | "log"> {
  /** The model of the family; live. */
  readonly state: ProxyState;
}

export class AfterSync {
  readonly #options: AfterSyncOptions;
  /** Trigger times of changes of which a part is still to be programmed. */
  #unobserved: AppliedChanges["triggerTimesMs"] = [];

  constructor(options: AfterSyncOptions) {
    this.#options = options;
  }

  /**
   * Latencies from cause to kernel. Those of services with a refused part would be untrue; they are left out.
   *
   * @param later keys of service ports that the next sync programs: the causes of their changes wait for it.
   */
  observeProgramming(
    triggerTimesMs: AppliedChanges["triggerTimesMs"],
    failures: readonly SyncFailure[],
    later: ReadonlySet<string>,
  ): void {
    const { clock, metrics, log } = this.#options;
    // A subject is `namespace/name:port` or `namespace/name`.
    const refused = new Set(failures.map(({ subject }) => subject.split(":", 1)[0]));
    const unfinished = new Set(Array.from(later, serviceOfKey));
    const causes = [...this.#unobserved, ...triggerTimesMs];
    this.#unobserved = causes.filter(({ service }) => unfinished.has(service));
    const nowMs = clock.now();
    for (const { service, timesMs } of causes) {
      if (unfinished.has(service) || refused.has(service)) continue;
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
