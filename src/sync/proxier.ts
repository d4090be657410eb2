/**
 * One address family from events to kernel: keeps the model, decides when to sync and whether in full, hands the work to
 * the mode's {@link Backend} and tells everybody how it went. The same for all modes.
 * Reference endpoints.md §6.3, sync.md §12.2, §12.3; iptables-operation.md §9.1, §9.2.
 *
 * What a sync does not finish is never lost: changes that arrive meanwhile stay pending in the model for the next sync, a
 * sync that fails hands its changes on, and what the kernel refused is remembered by the backend.
 */

import { BoundedRunner } from "../async/bounded-runner.ts";
import { Mutex } from "../async/mutex.ts";
import { runInTurns } from "../async/steps.ts";
import { SliceYielder } from "../async/yielder.ts";
import type { ObjectEvent } from "../cluster/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../cluster/objects.ts";
import type { Logger } from "../logging/logger.ts";
import { messageOf } from "../logging/message-of.ts";
import { logConflicts } from "../model/frontend-conflicts.ts";
import { type AppliedChanges, ProxyState } from "../model/proxy-state.ts";
import { serviceOfKey } from "../model/service-port-name.ts";
import type { IpFamily } from "../net/ip.ts";
import { formatMs } from "../text/duration.ts";
import { AfterSync } from "./after-sync.ts";
import type { OnLostRules, SyncFailure, SyncInput, SyncOutcome } from "./backend.ts";
import { CauseNotes } from "./journal/cause-notes.ts";
import { RunningSync } from "./journal/running-sync.ts";
import { FULL_SYNC, merged, NO_WORK, type PendingWork } from "./pending-work.ts";
import { Portions, type PortPortion } from "./portions.ts";
import type { ProxierOptions, ProxierStatus } from "./proxier-options.ts";
import { StaleFlows } from "./stale-flows.ts";
import { IncompleteSyncError, isServing } from "./sync-failures.ts";

const HOUR_MS = 3_600_000;

export class Proxier {
  readonly family: IpFamily;
  /** The model of this family; live. */
  readonly state: ProxyState;
  readonly #options: ProxierOptions;
  readonly #log: Logger;
  readonly #fullMs: number;
  readonly #runner: BoundedRunner;
  readonly #stop = new AbortController();
  readonly #after: AfterSync;
  /** Between the steps of a sync the model is of no use to others. */
  readonly #turns = new Mutex();
  readonly #staleFlows: StaleFlows;
  /** Kept where there is a journal. */
  readonly #notes: CauseNotes | undefined;
  #hasServices = false;
  #hasEndpointSlices = false;
  #zone: string | undefined;
  #serviceCIDRs: readonly string[] = [];
  /** What the next sync owes besides the model's own changes. */
  #pending = FULL_SYNC;
  #lastFullSyncMs = Number.NEGATIVE_INFINITY;
  /** One after the other until now. */
  #incompleteFullSyncs = 0;
  #wasQueuedWhileSyncing = false;
  #isFailing = false;
  readonly #inForce = Promise.withResolvers<void>();
  #failures: readonly SyncFailure[] = [];
  readonly #portions = new Portions();
  /** Changes that are in the kernel in part. */
  #unobserved: AppliedChanges["triggerTimesMs"] = [];

  /** @throws RangeError when `minSyncPeriod` is longer than the time between full syncs. */
  constructor(options: ProxierOptions) {
    const { backend, periods, clock } = options;
    this.#options = options;
    this.family = backend.family;
    this.#log = options.log.with({ ipFamily: this.family });
    this.#fullMs = periods.fullMs ?? HOUR_MS;
    if (periods.minMs > this.#fullMs) {
      const most = `${formatMs(this.#fullMs)}, after which all rules are written in any case`;
      throw new RangeError(`minSyncPeriod is ${formatMs(periods.minMs)}: it must be at most ${most}`);
    }
    this.#notes = options.journal && new CauseNotes(() => clock.monotonicMs());
    this.#notes?.onWhole("start");
    this.state = new ProxyState({
      family: this.family,
      nodeName: options.nodeName,
      allowExternalIPs: options.allowExternalIPs,
      now: () => clock.now(),
      log: this.#log,
    });
    const own = { ...options, log: this.#log, state: this.state };
    this.#after = new AfterSync(own);
    this.#staleFlows = new StaleFlows({ ...own, family: this.family, turns: this.#turns, signal: this.#stop.signal });
    this.#runner = new BoundedRunner({
      periods: { minMs: periods.minMs, retryMs: periods.syncMs, maxMs: this.#fullMs },
      clock,
      restMs: () => (periods.isMinChosen === true ? 0 : (backend.restMs ?? 0)),
      work: () => this.#turns.run(() => this.#sync()),
    });
  }

  /** The node's zone; undefined when it has none. */
  get zone(): string | undefined {
    return this.#zone;
  }

  /** The union of all ServiceCIDRs, as text. */
  get serviceCIDRs(): readonly string[] {
    return this.#serviceCIDRs;
  }

  get status(): ProxierStatus {
    return {
      isInitialised: this.#isInitialised,
      isSyncing: this.#runner.isRunning,
      needsFullSync: this.#pending.isFull,
      isFailing: this.#isFailing,
      failures: this.#failures,
      remarks: this.#options.backend.remarks ?? [],
    };
  }

  /** Takes a Service event; asks for a sync when it leaves anything to do. */
  onService(event: ObjectEvent<ServiceRecord>): void {
    const { serviceChanges } = this.#options.metrics;
    const isPending = this.state.onService(event);
    serviceChanges.addTotal();
    serviceChanges.setPending(this.state.pendingServiceCount);
    if (!isPending || !this.#isInitialised) return;
    this.#notes?.onService(event);
    this.sync();
  }

  /** Takes an EndpointSlice event of any family; asks for a sync when it changes something for this one. */
  onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): void {
    const { endpointChanges } = this.#options.metrics;
    const { accepted, changed } = this.state.onEndpointSlice(event);
    if (accepted) endpointChanges.addTotal();
    if (!changed) return;
    endpointChanges.addPending();
    if (!this.#isInitialised) return;
    this.#notes?.onEndpointSlice(event);
    this.sync();
  }

  /** All Services there were at the start have been handed over. */
  onServicesSynced(): void {
    this.#hasServices = true;
    if (this.#isInitialised) this.#runner.runNow();
  }

  /** All EndpointSlices there were at the start have been handed over. */
  onEndpointSlicesSynced(): void {
    this.#hasEndpointSlices = true;
    if (this.#isInitialised) this.#runner.runNow();
  }

  /** The node's zone is another one now; every service may choose other endpoints. */
  onZone(zone: string | undefined): void {
    this.#zone = zone;
    this.#owe({ isFull: true });
    if (this.#isInitialised) this.#notes?.onWhole("zone");
    this.sync();
  }

  /** Node ports answer on other addresses of the node now. */
  onNodeAddresses(): void {
    this.#owe({ isFull: true });
    if (!this.#isInitialised) return;
    this.#notes?.onWhole("node-addresses");
    this.sync();
  }

  /** The union of all ServiceCIDRs, in a fixed order. Costs a sync only in a mode that uses them, and only on change. */
  onServiceCIDRs(cidrs: readonly string[]): void {
    const known = this.#serviceCIDRs;
    if (cidrs.length === known.length && cidrs.every((cidr, index) => cidr === known[index])) return;
    this.#serviceCIDRs = cidrs;
    if (this.#options.backend.usesServiceCIDRs !== true) return;
    this.#owe({ isFull: true });
    if (!this.#isInitialised) return;
    this.#notes?.onWhole("service-cidrs");
    this.sync();
  }

  /** Queues a sync: it runs when the shortest period allows. From now on health expects one to succeed. */
  sync(): void {
    const { health, metrics, clock } = this.#options;
    if (this.#runner.isRunning) this.#wasQueuedWhileSyncing = true;
    health.queuedUpdate(this.family);
    metrics.setLastQueued(clock.now() / 1000);
    this.#runner.request();
  }

  /**
   * Syncs whenever due and watches over the rules until the signal aborts; a sync under way is told of the abort and
   * waited for. The rules stay. Never rejects for what a sync or the kernel does.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { health, metrics, clock } = this.#options;
    const stop = (): void => this.#stop.abort(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    health.updated(this.family);
    metrics.setLastQueued(clock.now() / 1000);
    // A first sync that failed before the loop started is still owed.
    if (this.#isFailing) health.queuedUpdate(this.family);
    await Promise.all([this.#runner.run(signal), this.#watch(signal)]);
    await this.#staleFlows.settled;
  }

  /** Resolves after the first sync that has brought rules into the kernel, perhaps but for parts that it refused. */
  get inForce(): Promise<void> {
    return this.#inForce.promise;
  }

  get #isInitialised(): boolean {
    return this.#hasServices && this.#hasEndpointSlices;
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { backend, clock, metrics, periods } = this.#options;
    const onLost: OnLostRules = (lost, by) => {
      metrics.countRepair();
      this.#notes?.onLost(lost?.ports.size ?? null, by ?? null);
      this.#owe(lost === undefined ? { isFull: true } : { ports: lost.ports });
      this.#runner.runNow();
    };
    while (!signal.aborted) {
      try {
        await backend.monitor?.(onLost, signal, () => {
          this.#notes?.onWhole("requested");
          this.sync();
        });
        return;
      } catch (error) {
        if (signal.aborted) return;
        const retryingTime = formatMs(periods.syncMs);
        this.#log.error("Watching over the rules failed and will be started again", error, { retryingTime });
        await clock.sleep(periods.syncMs, signal);
      }
    }
  }

  /** One turn. Rejects when the kernel is not in the wanted state afterwards. */
  async #sync(): Promise<void> {
    const { backend, clock, metrics } = this.#options;
    const { signal } = this.#stop;
    if (signal.aborted) return;
    if (!this.#isInitialised) {
      this.#log.v(2, "Not syncing until Services and EndpointSlices have been received");
      return;
    }
    const startMs = clock.monotonicMs();
    let work = this.#take(startMs);
    const isFullSync = work.isFull;
    this.#wasQueuedWhileSyncing = false;
    const running = this.#begin(isFullSync, startMs);
    try {
      const applied = await this.#applyChanges();
      const {
        changedPorts: ports,
        updatedServices: services,
        conntrackCleanupRequired: staleFlows,
        goneFrontends,
      } = applied;
      work = merged(work, { ports, services, ...(backend.endsFlows !== true && { staleFlows, goneFrontends }) });
      running?.onModel(ports.size);
      this.#log.v(2, `Syncing ${backend.mode} rules`, { fullSync: isFullSync });
      const most = isFullSync ? Number.POSITIVE_INFINITY : (backend.portsAtOnce ?? Number.POSITIVE_INFINITY);
      const portion = this.#portions.first(work.ports, most);
      const rulesMs = clock.monotonicMs();
      const outcome = await backend.sync(this.#inputOf({ ...work, ports: portion.now }), signal);
      if (!isFullSync) this.#noteCost(portion, clock.monotonicMs() - rulesMs);
      running?.onRules(outcome.written);
      await this.#finish(outcome, applied, work, portion.later);
      running?.end("done", []);
    } catch (error) {
      this.#pending = merged(leftBy(error, work), this.#pending);
      if (!signal.aborted) this.#reportFailure(error);
      running?.end(error instanceof IncompleteSyncError ? "refused" : "failed", this.#failures);
      throw error;
    } finally {
      const elapsedMs = clock.monotonicMs() - startMs;
      metrics.observeSync(elapsedMs / 1000, isFullSync);
      this.#log.v(2, "SyncProxyRules complete", { elapsed: formatMs(elapsedMs) });
    }
  }

  /** Begins an entry of the journal. A sync that nothing asked for is the periodic one, or tries again what failed. */
  #begin(isFullSync: boolean, startMs: number): RunningSync | undefined {
    const { journal, clock } = this.#options;
    if (journal === undefined || this.#notes === undefined) return undefined;
    if (this.#notes.isEmpty) this.#notes.onWhole(this.#isFailing ? "retry" : isFullSync ? "periodic" : "requested");
    const noted = this.#notes.take();
    return new RunningSync({ journal, family: this.family, clock, isFullSync, startMs, noted });
  }

  #noteCost(portion: PortPortion, milliseconds: number): void {
    const { metrics, onCostlyService } = this.#options;
    for (const costly of this.#portions.note(portion, milliseconds)) {
      const { service, servicePorts } = costly;
      this.#log.warn("A Service took long to program", { service, servicePorts, took: formatMs(costly.milliseconds) });
      metrics.countCostlyService();
      onCostlyService?.(costly);
    }
  }

  #owe(work: Partial<PendingWork>): void {
    this.#pending = merged(this.#pending, work);
  }

  /** What is pending, in full when that is due. What is asked for from now on is the next sync's. */
  #take(nowMs: number): PendingWork {
    const { skipsPeriodicFullSync = false } = this.#options.backend;
    const work = this.#pending;
    this.#pending = NO_WORK;
    return merged(work, { isFull: !skipsPeriodicFullSync && nowMs - this.#lastFullSyncMs >= this.#nextFullSyncMs });
  }

  /**
   * How long after the last full sync the next one is due. The backend tries refused parts again with every sync: they are no reason
   * to write everything with every change.
   */
  get #nextFullSyncMs(): number {
    if (this.#incompleteFullSyncs === 0) return this.#fullMs;
    return Math.min(this.#options.periods.syncMs * 2 ** (this.#incompleteFullSyncs - 1), this.#fullMs);
  }

  async #applyChanges(): Promise<AppliedChanges> {
    const { serviceChanges, endpointChanges } = this.#options.metrics;
    const { yielder = new SliceYielder() } = this.#options;
    serviceChanges.setPending(0);
    endpointChanges.resetPending();
    const applied = await runInTurns(this.state.applyingChanges(), yielder);
    logConflicts(applied.conflicts, this.#log);
    for (const conflict of applied.conflicts) this.#options.onConflict?.(conflict);
    return applied;
  }

  #inputOf(work: PendingWork): SyncInput {
    const { services, endpoints, endpointCount } = this.state;
    return {
      isFullSync: work.isFull,
      services,
      endpoints,
      endpointCount,
      changedPorts: work.ports,
      zone: this.#zone,
      serviceCIDRs: this.#serviceCIDRs,
    };
  }

  /**
   * The kernel has been programmed, perhaps but for the parts that it refused. Everything that follows the rules is
   * done for what is there; health asks only whether the node serves.
   *
   * @param later service ports that are the next sync's.
   */
  async #finish(
    outcome: SyncOutcome,
    applied: AppliedChanges,
    work: PendingWork,
    later: ReadonlySet<string>,
  ): Promise<void> {
    const { clock, health, metrics, onFailures } = this.#options;
    const { failures, noLocalEndpoints } = outcome;
    this.#inForce.resolve();
    const isComplete = failures.length === 0;
    if (work.isFull) {
      this.#lastFullSyncMs = clock.monotonicMs();
      this.#incompleteFullSyncs = isComplete ? 0 : this.#incompleteFullSyncs + 1;
    }
    if (later.size > 0) this.#postpone(later, work);
    const unfinished = new Set(Array.from(later, serviceOfKey));
    const causes = [...this.#unobserved, ...applied.triggerTimesMs];
    this.#unobserved = causes.filter(({ service }) => unfinished.has(service));
    this.#after.observeProgramming(
      causes.filter(({ service }) => !unfinished.has(service)),
      failures,
    );
    metrics.setNoLocalEndpoints(noLocalEndpoints.internal, noLocalEndpoints.external);
    if (isComplete) this.#isFailing = false;
    if (isServing(failures, this.state.services)) {
      health.updated(this.family);
      // What was queued meanwhile may not be in the kernel yet.
      if (this.#wasQueuedWhileSyncing) health.queuedUpdate(this.family);
      metrics.setLastSync(clock.now() / 1000);
    }
    const hadFailures = this.#failures.length > 0;
    this.#failures = failures;
    if (!isComplete || hadFailures) onFailures?.(failures);
    await this.#after.syncServiceHealth(work.services);
    if (work.staleFlows && later.size === 0) this.#staleFlows.look(work.goneFrontends);
    if (!isComplete) throw new IncompleteSyncError(failures);
  }

  /** Flows that the old rules still make are looked for when all of the new ones are there. */
  #postpone(ports: ReadonlySet<string>, { staleFlows, goneFrontends }: PendingWork): void {
    this.#owe({ ports, staleFlows, goneFrontends });
    this.#wasQueuedWhileSyncing = true;
    this.#runner.runNow();
  }

  /** Nothing could be programmed, or nothing is known of what was: that concerns no part but all. */
  #noteTotalFailure(error: unknown): void {
    const { backend, onFailures } = this.#options;
    const reason = messageOf(error);
    this.#failures = [{ subject: `${backend.mode} rules`, reason }];
    onFailures?.(this.#failures);
  }

  #reportFailure(error: unknown): void {
    const { health, periods } = this.#options;
    this.#isFailing = true;
    const isPartial = error instanceof IncompleteSyncError;
    if (!isPartial) this.#noteTotalFailure(error);
    // Syncs that were not queued must show, too, or health would stay good without end.
    if (!isPartial || !isServing(this.#failures, this.state.services)) health.queuedUpdate(this.family);
    this.#log.error("Sync failed", error, { retryingTime: formatMs(Math.min(periods.syncMs, this.#fullMs)) });
  }
}

/**
 * What a failed sync hands on. The backend remembers what was refused, and tries it again with every sync; flows that the old
 * rules still make are looked for when the new ones are in. When nothing is known of the kernel, all must be written.
 */
function leftBy(error: unknown, work: PendingWork): PendingWork {
  return error instanceof IncompleteSyncError
    ? { ...NO_WORK, staleFlows: work.staleFlows, goneFrontends: work.goneFrontends }
    : { ...work, isFull: true };
}
