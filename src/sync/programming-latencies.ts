/** How long changes of pods take to reach the kernel (`kubeproxy_network_programming_duration_seconds`). Reference sync.md. */
import type { Logger } from "../logging/logger.ts";
import type { AppliedChanges } from "../model/proxy-state.ts";
import { serviceOfKey } from "../model/service-port-name.ts";
import type { SyncFailure } from "./backend.ts";
import type { ProxierOptions } from "./proxier-options.ts";

type TriggerTimes = AppliedChanges["triggerTimesMs"];

interface LatencyOptions {
  readonly clock: Pick<ProxierOptions["clock"], "now">;
  readonly metrics: Pick<ProxierOptions["metrics"], "observeNetworkProgramming">;
  readonly log: Logger;
}

export class ProgrammingLatencies {
  readonly #options: LatencyOptions;
  /** Of changes of which a part is still to be programmed. */
  #unobserved: TriggerTimes = [];

  constructor(options: LatencyOptions) {
    this.#options = options;
  }

  /**
   * Observes the changes that a sync has programmed, from cause to kernel. Services with a refused part are left out: their latencies
   * would be untrue.
   *
   * @param later keys of service ports that the next sync programs: the causes of their changes wait for it.
   */
  observe(triggerTimesMs: TriggerTimes, failures: readonly SyncFailure[], later: ReadonlySet<string>): void {
    // A subject is `namespace/name:port` or `namespace/name`.
    const refused = new Set(failures.map(({ subject }) => subject.split(":", 1)[0]));
    const unfinished = new Set(Array.from(later, serviceOfKey));
    const causes = [...this.#unobserved, ...triggerTimesMs];
    this.#unobserved = causes.filter(({ service }) => unfinished.has(service));
    const { clock, metrics, log } = this.#options;
    const nowMs = clock.now();
    for (const { service, timesMs } of causes) {
      if (unfinished.has(service) || refused.has(service)) continue;
      for (const timeMs of timesMs) {
        // Less than 0 when a clock is wrong or was set meanwhile: a histogram's sum must not go down.
        const elapsed = Math.max(0, nowMs - timeMs) / 1000;
        metrics.observeNetworkProgramming(elapsed);
        log.v(4, "Network programming", { endpoint: service, elapsed });
      }
    }
  }
}
