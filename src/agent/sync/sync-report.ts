/**
 * Reports syncs to health, metrics, the journal and those who show failures: what caused each, how long its parts took,
 * what became of it, and how long changes took to reach the kernel (reference sync.md).
 */

import type { SyncFailure, SyncOutcome, Written } from "../../contract/backend.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { ObjectEvent } from "../../model/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../../model/objects.ts";
import type { AppliedChanges, ProxyState } from "../../model/proxy-state.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { serviceOfKey } from "../../model/service-port-name.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import type { SyncCause, SyncRecord } from "./journal/sync-record.ts";
import { IncompleteSyncError } from "./pending-work.ts";
import type { ProxierOptions } from "./proxier-options.ts";

export const SYNC_FAILED = "Sync failed";

/** Further causes and failures are only counted. */
const KEPT = 8;

type Services = ReadonlyMap<string, ServicePort>;
type TriggerTimes = AppliedChanges["triggerTimesMs"];

interface NotedCauses {
  readonly causes: SyncCause[];
  count: number;
  /** Monotonic time of the first cause. */
  readonly sinceMs: number;
}

/** The running sync, updated as it progresses; times are monotonic. */
interface RunningSync {
  readonly isFullSync: boolean;
  readonly noted: NotedCauses;
  readonly startMs: number;
  /** When the changes were in the model. */
  modelMs: number;
  /** When the backend had finished. */
  rulesMs: number | undefined;
  servicePorts: number;
  written: Written | undefined;
}

export class SyncReport {
  readonly #options: ProxierOptions;
  readonly #inForce = Promise.withResolvers<void>();
  #isFailing = false;
  #failures: readonly SyncFailure[] = [];
  /** A sync was requested after the current one had begun. */
  #isOvertaken = false;
  /** Causes of the next sync. */
  #noted: NotedCauses | undefined;
  /** Changes that are not fully programmed yet. */
  #unobserved: TriggerTimes = [];
  /** Service ports whose Local policy has endpoints, but none on this node. */
  readonly #lacking = { internal: new Set<string>(), external: new Set<string>() };

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

  /** Adds a cause of the next sync. */
  note(cause: SyncCause): void {
    this.#noted ??= { causes: [], count: 0, sinceMs: this.#options.clock.monotonicMs() };
    this.#noted.count += 1;
    if (this.#noted.causes.length < KEPT) this.#noted.causes.push(cause);
  }

  /** Adds a changed cluster object as a cause. */
  noteObject({ kind: change, object }: ObjectEvent<ServiceRecord> | ObjectEvent<EndpointSliceRecord>): void {
    const { namespace, name } = object;
    const isSlice = "serviceName" in object;
    const service = isSlice ? object.serviceName : name;
    this.note({ kind: "object", object: isSlice ? "EndpointSlice" : "Service", change, namespace, name, service });
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

  /** A sync begins. One that nothing requested is the periodic one, or a retry. */
  begin(isFullSync: boolean, startMs: number): RunningSync {
    this.#isOvertaken = false;
    const otherwise = this.#isFailing ? "retry" : isFullSync ? "periodic" : "requested";
    const noted = this.#noted ?? { causes: [{ kind: otherwise }], count: 1, sinceMs: startMs };
    this.#noted = undefined;
    return { isFullSync, noted, startMs, modelMs: startMs, rulesMs: undefined, servicePorts: 0, written: undefined };
  }

  /**
   * The kernel is programmed, perhaps except for rejected parts; health only asks whether the node serves.
   *
   * @param ports that were to be programmed. @param unfinished Services, `namespace/name`, of which a part is left for the
   * next sync.
   */
  done(
    { failures }: SyncOutcome,
    triggerTimesMs: TriggerTimes,
    ports: ReadonlySet<string>,
    unfinished: ReadonlySet<string>,
    state: Pick<ProxyState, "services" | "endpoints">,
  ): void {
    const { backend, clock, health, log, metrics } = this.#options;
    const isComplete = failures.length === 0;
    this.#observeLatencies(triggerTimesMs, failures, unfinished);
    this.#countLacking(ports, state);
    if (isComplete && this.#isFailing) {
      this.#isFailing = false;
      log.info("Syncs succeed again", { ipFamily: backend.family, solves: SYNC_FAILED });
    }
    if (isServing(failures, state.services)) {
      this.#inForce.resolve();
      health.updated(backend.family);
      // Changes that were queued meanwhile may not be in the kernel yet.
      if (this.#isOvertaken) health.queuedUpdate(backend.family);
      metrics.setLastSync(clock.now() / 1000);
    }
    this.#failures = failures;
  }

  #countLacking(ports: ReadonlySet<string>, { services, endpoints }: Pick<ProxyState, "services" | "endpoints">): void {
    const { backend, metrics, nodeName } = this.#options;
    const { internal, external } = this.#lacking;
    for (const key of ports) {
      const port = services.get(key);
      internal.delete(key);
      external.delete(key);
      if (port?.internalPolicyLocal !== true && port?.externalPolicyLocal !== true) continue;
      // Zones only matter among the endpoints of all nodes.
      const { lacksLocal } = routeServicePort(port, endpoints.get(key) ?? [], { nodeName, zone: undefined });
      if (lacksLocal.internal) internal.add(key);
      if (lacksLocal.external) external.add(key);
    }
    if (backend.countsServices !== true) metrics.setNoLocalEndpoints(internal.size, external.size);
    else metrics.setNoLocalEndpoints(servicesIn(internal), servicesIn(external));
  }

  /**
   * The latency, from cause to kernel (`kubeproxy_network_programming_duration_seconds`), of the changes that a sync
   * programmed. Leaves out Services with a rejected part: their latencies would be wrong.
   */
  #observeLatencies(
    triggerTimesMs: TriggerTimes,
    failures: readonly SyncFailure[],
    unfinished: ReadonlySet<string>,
  ): void {
    // A subject is `namespace/name:port` or `namespace/name`.
    const refused = new Set(failures.map(({ subject }) => subject.split(":", 1)[0]));
    const causes = [...this.#unobserved, ...triggerTimesMs];
    this.#unobserved = causes.filter(({ service }) => unfinished.has(service));
    const { backend, clock, metrics, log } = this.#options;
    const nowMs = clock.now();
    for (const { service, timesMs } of causes) {
      if (unfinished.has(service) || refused.has(service)) continue;
      for (const timeMs of timesMs) {
        // Negative if a clock is wrong or was set meanwhile: a histogram's sum must not go down.
        const elapsed = Math.max(0, nowMs - timeMs) / 1000;
        metrics.observeNetworkProgramming(elapsed);
        log.v(4, "Network programming", { endpoint: service, elapsed, ipFamily: backend.family });
      }
    }
  }

  failed(error: unknown, services: Services): void {
    const { backend, health } = this.#options;
    this.#isFailing = true;
    const isPartial = error instanceof IncompleteSyncError;
    // Nothing could be programmed, or the outcome is unknown: that concerns everything, not one part.
    if (!isPartial) this.#failures = [{ subject: `${backend.mode} rules`, reason: messageOf(error) }];
    // Failed syncs that were not queued must show, too, or health would stay good forever.
    if (!isPartial || !isServing(this.#failures, services)) health.queuedUpdate(backend.family);
  }

  /** Writes a sync that has ended to the journal, with what failed, unless it is done. */
  end(sync: RunningSync, result: SyncRecord["result"]): void {
    const { journal, backend, clock } = this.#options;
    if (journal === undefined) return;
    const { isFullSync, noted, startMs, modelMs, servicePorts, written } = sync;
    const failures = result === "done" ? [] : this.#failures;
    const endMs = clock.monotonicMs();
    const { rulesMs = endMs } = sync;
    journal.add({
      family: backend.family,
      endedMs: clock.now(),
      isFullSync,
      causes: noted.causes,
      furtherCauses: noted.count - noted.causes.length,
      servicePorts,
      stages: {
        waiting: Math.max(0, startMs - noted.sinceMs),
        model: modelMs - startMs,
        rules: rulesMs - modelMs,
        kernel: written?.kernelMs ?? null,
        after: endMs - rulesMs,
      },
      written: written?.counts ?? null,
      result,
      failures: failures.slice(0, KEPT),
      furtherFailures: Math.max(0, failures.length - KEPT),
    });
  }
}

function servicesIn(ports: ReadonlySet<string>): number {
  return new Set(Array.from(ports, serviceOfKey)).size;
}

/**
 * Whether a node with these failures is of use to clients. Another node would reject a bad service port, too: taking
 * this one out of load balancers, or restarting the program, helps no one while others are served.
 */
function isServing(failures: readonly SyncFailure[], services: Services): boolean {
  if (failures.some(({ concernsAll }) => concernsAll)) return false;
  if (failures.length === 0 || services.size === 0) return true;
  const refused = new Set(failures.map(({ subject }) => subject));
  // Stops at the first that is served: there may be tens of thousands.
  for (const { name } of services.values()) if (!refused.has(name.text)) return true;
  return false;
}
