/** What follows the rules of a sync: latencies, health ports of services, flows that the old rules still make. */
import type { Clock } from "../async/clock.ts";
import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { LocalAddresses } from "../kernel/route/addresses.ts";
import type { Logger } from "../logging/logger.ts";
import type { AppliedChanges, ProxyState } from "../model/proxy-state.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { formatMs } from "../text/duration.ts";
import type { SyncFailure } from "./backend.ts";
import type { ServiceHealthPorts, SyncMetrics } from "./observers.ts";
import { deleteStaleUdpFlows } from "./stale-flows.ts";
import { refusedServices } from "./sync-failures.ts";

interface AfterSyncOptions {
  readonly metrics: SyncMetrics;
  readonly serviceHealth: ServiceHealthPorts;
  readonly conntrack: ConntrackTable;
  /** @default none is known */
  readonly localAddresses?: LocalAddresses;
  readonly clock: Clock;
  readonly log: Logger;
  readonly family: IpFamily;
  /** The model of the family; live. */
  readonly state: ProxyState;
}

/** As status and page name it where it cannot be done. */
const ENDING_FLOWS = "ending UDP flows to endpoints that are gone";

export class AfterSync {
  readonly #options: AfterSyncOptions;
  #isFlowEndingRefused = false;

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

  /** Deletes UDP flows that lead where no rule leads now. @param gone frontends without their owner. */
  async cleanStaleFlows(gone: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { clock, conntrack, metrics, family, state, log } = this.#options;
    const startMs = clock.monotonicMs();
    try {
      const { deleted, errors } = await deleteStaleUdpFlows(
        conntrack,
        family,
        state,
        gone,
        signal,
        await this.#ownAddresses(signal),
      );
      const elapsedMs = clock.monotonicMs() - startMs;
      metrics.observeConntrackCleanup(elapsedMs / 1000, deleted);
      if (errors.length > 0) {
        const cannot = ENDING_FLOWS;
        log.error("Some stale UDP flows could not be deleted", errors[0], { failed: errors.length, deleted, cannot });
        this.#isFlowEndingRefused = true;
      } else if (this.#isFlowEndingRefused) {
        log.info("Stale UDP flows are deleted again", { can: ENDING_FLOWS });
        this.#isFlowEndingRefused = false;
      }
      log.v(4, "Finished reconciling conntrack entries", { deleted, took: formatMs(elapsedMs) });
    } catch (error) {
      log.error("Stale UDP flows were not looked for: conntrack could not be read", error, { cannot: ENDING_FLOWS });
      this.#isFlowEndingRefused = true;
    }
  }

  async #ownAddresses(signal: AbortSignal): Promise<ReadonlySet<IpAddress>> {
    const { localAddresses, family, log } = this.#options;
    try {
      return new Set(await localAddresses?.(family, signal));
    } catch (error) {
      log.error("UDP flows to node ports may stay: the addresses of the node are not known", error);
      return new Set();
    }
  }
}
