/** How long pod changes take to reach the kernel (`kubeproxy_network_programming_duration_seconds`). Reference sync.md. */

import type { SyncFailure } from "../../contract/backend.ts";
import type { Logger } from "../../logging/logger.ts";
import type { AppliedChanges } from "../../model/proxy-state.ts";
import { serviceOfKey } from "../../model/service-port-name.ts";
import type { ProxierOptions } from "./proxier-options.ts";

type TriggerTimes = AppliedChanges["triggerTimesMs"];

interface LatencyOptions {
  readonly clock: Pick<ProxierOptions["clock"], "now">;
  readonly metrics: Pick<ProxierOptions["metrics"], "observeNetworkProgramming">;
  readonly log: Logger;
}

export class ProgrammingLatencies {
  readonly #options: LatencyOptions;
  /** Changes that are not fully programmed yet. */
  #unobserved: TriggerTimes = [];

  constructor(options: LatencyOptions) {
    this.#options = options;
  }

  /**
   * Observes the latency, from cause to kernel, of the changes that a sync programmed. Leaves out Services with a
   * rejected part: their latencies would be wrong.
   *
   * @param later keys of service ports left for the next sync: the causes of their changes wait for it.
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
        // Negative if a clock is wrong or was set meanwhile: a histogram's sum must not go down.
        const elapsed = Math.max(0, nowMs - timeMs) / 1000;
        metrics.observeNetworkProgramming(elapsed);
        log.v(4, "Network programming", { endpoint: service, elapsed });
      }
    }
  }
}
