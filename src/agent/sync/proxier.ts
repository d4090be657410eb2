/**
 * One address family, from events to the kernel: keeps the model, decides when to sync and whether in full, hands the
 * work to the mode's {@link Backend}, and reports the outcome to health, metrics and journal. The same for all modes.
 * Reference endpoints.md §6.3, sync.md §12.2, §12.3; iptables-operation.md §9.1, §9.2.
 *
 * What a sync does not finish is never lost: changes that arrive meanwhile stay pending in the model for the next sync,
 * a failed sync hands its changes on, and the backend remembers what the kernel rejected.
 */

import { BoundedRunner } from "../../async/bounded-runner.ts";
import { Mutex } from "../../async/mutex.ts";
import { runInTurns } from "../../async/turns.ts";
import type { OnLostRules, SyncFailure, SyncOutcome } from "../../contract/backend.ts";
import { NO_CONNTRACK } from "../../kernel/conntrack/conntrack.ts";
import type { Logger } from "../../logging/logger.ts";
import type { ObjectEvent } from "../../model/object-source.ts";
import { type EndpointSliceRecord, equalLists, type ServiceRecord } from "../../model/objects.ts";
import { logConflicts, summariesOf } from "../../model/owned-services.ts";
import { type AppliedChanges, ProxyState } from "../../model/proxy-state.ts";
import { serviceOfKey } from "../../model/service-port-name.ts";
import type { RoutedPort, StandingPort } from "../../model/standing-ports.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { formatMs } from "../../text/duration.ts";
import { GoneConnections } from "./gone-connections.ts";
import type { WholeCause } from "./journal/sync-record.ts";
import {
  FULL_SYNC,
  FullSyncs,
  IncompleteSyncError,
  isAmong,
  leftBy,
  merged,
  NO_WORK,
  type PendingWork,
  union,
} from "./pending-work.ts";
import { type CostlyService, Portions } from "./portions.ts";
import type { ProxierOptions, ProxierStatus } from "./proxier-options.ts";
import { StaleFlows } from "./stale-flows.ts";
import { SYNC_FAILED, SyncReport } from "./sync-report.ts";

export class Proxier {
  readonly family: IpFamily;
  /** The model of this family; live. */
  readonly state: ProxyState;
  readonly #options: ProxierOptions;
  readonly #log: Logger;
  readonly #fullSyncs: FullSyncs;
  readonly #runner: BoundedRunner;
  readonly #stop = new AbortController();
  /** Guards the model, which others cannot use between the steps of a sync. */
  readonly #turns = new Mutex();
  readonly #staleFlows: StaleFlows;
  readonly #goneConnections: GoneConnections | undefined;
  /** The kinds whose initial objects have all been received. */
  readonly #synced = new Set<"services" | "endpointSlices">();
  #zone: string | undefined;
  #serviceCIDRs: readonly string[] = [];
  #otherNodes: ReadonlyMap<IpAddress, string> = new Map();
  /** Work for the next sync besides the model's own changes. */
  #pending = FULL_SYNC;
  readonly #report: SyncReport;
  /** Keys of the service ports that the kernel last rejected and whose old rules remain. */
  #refusedPorts: ReadonlySet<string> = new Set();
  /** By key: changed service ports as they were last in force. Those that are not in force yet, or rejected. */
  readonly #inForce = new Map<string, RoutedPort>();
  readonly #portions = new Portions();

  /** @throws RangeError when `minSyncPeriod` is longer than the time between full syncs. */
  constructor(options: ProxierOptions) {
    const { backend, periods, clock } = options;
    this.#options = options;
    this.family = backend.family;
    this.#log = options.log.with({ ipFamily: this.family });
    this.#fullSyncs = new FullSyncs(periods);
    this.#report = new SyncReport(options);
    this.#report.note({ kind: "start" });
    this.state = new ProxyState({
      family: this.family,
      nodeName: options.nodeName,
      allowExternalIPs: options.allowExternalIPs,
      now: () => clock.now(),
      monotonicMs: () => clock.monotonicMs(),
      log: this.#log,
    });
    const own = { log: this.#log, state: this.state, family: this.family, turns: this.#turns };
    const ofFamily = { ...options, ...own, signal: this.#stop.signal };
    this.#staleFlows = new StaleFlows(ofFamily);
    const { ending } = options;
    // A mode whose flows end at this process knows what becomes of them.
    const conntrack = backend.endsFlows === true ? NO_CONNTRACK : options.conntrack;
    this.#goneConnections = ending && new GoneConnections({ ...ofFamily, conntrack, led: backend.led, ending });
    this.#runner = new BoundedRunner({
      periods: { minMs: periods.minMs, retryMs: periods.syncMs, maxMs: this.#fullSyncs.mostMs },
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

  /** See {@link ProxierStatus.failures}. */
  get failures(): readonly SyncFailure[] {
    return this.#report.failures;
  }

  get status(): ProxierStatus {
    return {
      isInitialised: this.#isInitialised,
      isSyncing: this.#runner.isRunning,
      needsFullSync: this.#pending.isFull,
      isFailing: this.#report.isFailing,
      failures: this.failures,
      remarks: this.#options.backend.remarks ?? [],
      ...(this.#refusedPorts.size > 0 && { refused: Array.from(this.#refusedPorts, (key) => this.#refusedPort(key)) }),
    };
  }

  #refusedPort(servicePort: string): StandingPort {
    const isIts = ({ subject }: SyncFailure) => isAmong(new Set([subject]), servicePort);
    const { reason = "" } = this.failures.find(isIts) ?? {};
    return { servicePort, family: this.family, reason, inForce: this.#inForce.get(servicePort) };
  }

  /** Takes a Service event; requests a sync if it leaves anything to do. */
  onService(event: ObjectEvent<ServiceRecord>): void {
    const isPending = this.state.onService(event);
    this.#options.metrics.countServiceChange(this.state.pendingServiceCount);
    if (!isPending || !this.#isInitialised) return;
    this.#report.noteObject(event);
    this.sync();
  }

  /** Takes an EndpointSlice event of any family; requests a sync if it changes something for this one. */
  onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): void {
    const { accepted, changed } = this.state.onEndpointSlice(event);
    if (accepted) this.#options.metrics.countEndpointChange(changed);
    if (!changed || !this.#isInitialised) return;
    this.#report.noteObject(event);
    this.sync();
  }

  /** All initial objects of the kind have been received. */
  onSynced(kind: "services" | "endpointSlices"): void {
    this.#synced.add(kind);
    if (this.#isInitialised) this.#runner.runNow();
  }

  /** The node's zone changed; every Service may choose other endpoints. */
  onZone(zone: string | undefined): void {
    this.#zone = zone;
    this.#requestFullSync("zone");
    // Requested even before the start: from now on health expects a sync.
    if (!this.#isInitialised) this.sync();
  }

  /** Node ports now answer on other addresses of the node. */
  onNodeAddresses(): void {
    this.#requestFullSync("node-addresses");
  }

  /** Another mode's rules are gone: until then they could translate flows past a mode whose flows end at this process. */
  onLeftoversRemoved(): void {
    if (this.#options.backend.endsFlows === true) this.#requestFullSync("requested");
  }

  /** The union of all ServiceCIDRs, in a fixed order. Requests a sync only on change, and only in a mode that uses them. */
  onServiceCIDRs(cidrs: readonly string[]): void {
    if (equalLists(cidrs, this.#serviceCIDRs)) return;
    this.#serviceCIDRs = cidrs;
    if (this.#options.backend.usesServiceCIDRs === true) this.#requestFullSync("service-cidrs");
  }

  /** Other Nodes have other addresses. @param otherNodes live. */
  onOtherNodes(otherNodes: ReadonlyMap<IpAddress, string>): void {
    this.#otherNodes = otherNodes;
    if (this.#options.backend.usesOtherNodes === true) this.#requestFullSync("node-addresses");
  }

  /** Leaves out these endpoints, and no others: {@link ProxyState.leaveOut}. Resolves after the sync that does so, however it ends. */
  leaveOut(left: ReadonlyMap<string, ReadonlyMap<string, string>>): Promise<void> {
    this.state.leaveOut(left);
    this.#report.note({ kind: "left-endpoints" });
    return new Promise((resolve) => this.#runner.runNow(resolve));
  }

  #requestFullSync(kind: WholeCause["kind"]): void {
    this.#pending = merged(this.#pending, { isFull: true });
    if (!this.#isInitialised) return;
    this.#report.note({ kind });
    this.sync();
  }

  /** Queues a sync: it runs when the minimum period allows. From now on health expects a successful one. */
  sync(): void {
    this.#report.queued(this.#runner.isRunning);
    this.#runner.request();
  }

  /**
   * Syncs when due and watches the rules until the signal aborts; a running sync gets the abort and is awaited. The
   * rules stay. Never rejects because of a sync or the kernel.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { health, metrics, clock } = this.#options;
    const stop = (): void => this.#stop.abort(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    health.started(this.family);
    metrics.setLastQueued(clock.now() / 1000);
    // A first sync that failed before the loop started is still due.
    if (this.#report.isFailing) health.queuedUpdate(this.family);
    await Promise.all([this.#runner.run(signal), this.#watch(signal)]);
    await this.#staleFlows.settled;
  }

  /** Resolves after the first sync whose rules serve, perhaps except single service ports that the kernel rejected. */
  get inForce(): Promise<void> {
    return this.#report.inForce;
  }

  get #isInitialised(): boolean {
    return this.#synced.size === 2;
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { backend, clock, metrics, periods } = this.#options;
    const onLost: OnLostRules = (lost, by) => {
      metrics.countRepair();
      this.#report.note({ kind: "repair", servicePorts: lost?.ports.size || null, by: by ?? null });
      this.#pending = merged(this.#pending, lost === undefined ? { isFull: true } : { ports: lost.ports });
      this.#runner.runNow();
    };
    while (!signal.aborted) {
      try {
        await backend.monitor?.(onLost, signal, () => {
          this.#report.note({ kind: "requested" });
          this.sync();
        });
        return;
      } catch (error) {
        if (signal.aborted) return;
        const retryingTime = formatMs(periods.syncMs);
        this.#log.error("Watching the rules failed and will be restarted", error, { retryingTime });
        await clock.sleep(periods.syncMs, signal);
      }
    }
  }

  /** One sync. Rejects if the kernel is not in the desired state afterwards. */
  async #sync(): Promise<void> {
    const { backend, clock, metrics } = this.#options;
    const { signal } = this.#stop;
    if (signal.aborted) return;
    if (!this.#isInitialised) {
      this.#log.v(2, "Not syncing until Services and EndpointSlices have been received");
      return;
    }
    const startMs = clock.monotonicMs();
    const isFullDue = backend.skipsPeriodicFullSync !== true && this.#fullSyncs.isDue(startMs);
    let work = merged(this.#pending, { isFull: isFullDue });
    // Requests from now on go to the next sync.
    this.#pending = NO_WORK;
    const isFullSync = work.isFull;
    let wasFull = isFullSync;
    const record = this.#report.begin(isFullSync, startMs);
    const isTold = this.#log.isVerbose(2);
    try {
      const applied = await this.#applyChanges();
      const { changedPorts: ports, updatedServices: services, goneFrontends, replaced } = applied;
      for (const [key, before] of replaced)
        if (!this.#inForce.has(key) && !this.#refusedPorts.has(key)) this.#inForce.set(key, before);
      const flows = { staleFlows: applied.conntrackCleanupRequired, goneFrontends };
      work = merged(work, { ports, services, ...(backend.endsFlows !== true && flows) });
      record.modelMs = clock.monotonicMs();
      record.servicePorts = ports.size;
      if (isTold) this.#log.v(2, `Syncing ${backend.mode} rules`, { fullSync: isFullSync });
      const portion = this.#portions.first(work.ports, isFullSync ? undefined : backend.portsAtOnce);
      const { services: all, endpoints, endpointCount } = this.state;
      const ofNode = { zone: this.#zone, serviceCIDRs: this.#serviceCIDRs, otherNodes: this.#otherNodes };
      const wantsFormerEndpoints = (): boolean => this.#goneConnections?.isAskedForAny() === true;
      const served = { services: all, endpoints, endpointCount, ...ofNode, wantsFormerEndpoints };
      const outcome = await backend.sync({ ...served, isFullSync, changedPorts: portion.now }, signal);
      wasFull ||= outcome.wasFull === true;
      record.rulesMs = clock.monotonicMs();
      record.written = outcome.written;
      const costly = wasFull ? [] : this.#portions.note(portion, record.rulesMs - record.modelMs);
      for (const service of costly) this.#tellCostly(service);
      await this.#finish(outcome, applied, work, portion.later);
      this.#report.end(record, "done");
    } catch (error) {
      this.#pending = merged(leftBy(error, work, this.state.services), this.#pending);
      if (!signal.aborted) this.#reportFailure(error);
      this.#report.end(record, error instanceof IncompleteSyncError ? "refused" : "failed");
      throw error;
    } finally {
      const elapsedMs = clock.monotonicMs() - startMs;
      metrics.observeSync(elapsedMs / 1000, wasFull);
      if (isTold) this.#log.v(2, "SyncProxyRules complete", { elapsed: formatMs(elapsedMs) });
    }
  }

  #tellCostly(costly: CostlyService): void {
    const { service, servicePorts, milliseconds } = costly;
    this.#log.warn("A Service took long to program", { service, servicePorts, took: formatMs(milliseconds) });
    this.#options.metrics.countCostlyService();
    this.#options.onCostlyService?.(costly);
  }

  async #applyChanges(): Promise<AppliedChanges> {
    this.#options.metrics.resetPending();
    const applied = await runInTurns(this.state.applyingChanges());
    if (applied.conflicts.length === 0) return applied;
    const conflicts = summariesOf(applied.conflicts);
    logConflicts(conflicts, this.#log);
    for (const conflict of conflicts) this.#options.onConflict?.(conflict);
    return applied;
  }

  /**
   * The kernel is programmed, perhaps except for rejected parts. Everything that follows the rules is done for what is
   * there; health only asks whether the node serves.
   *
   * @param later service ports left for the next sync.
   */
  async #finish(
    outcome: SyncOutcome,
    applied: AppliedChanges,
    work: PendingWork,
    later: ReadonlySet<string>,
  ): Promise<void> {
    const { failures } = outcome;
    const unfinished = new Set(Array.from(later, serviceOfKey));
    if (work.isFull) this.#fullSyncs.done(this.#options.clock.monotonicMs(), failures.length === 0);
    if (later.size > 0) this.#leave(later, unfinished, work);
    this.#report.done(outcome, applied.triggerTimesMs, work.ports, unfinished, this.state);
    await this.#followUp(outcome, work, later, unfinished);
    if (failures.length > 0) throw new IncompleteSyncError(failures);
  }

  /** Leaves service ports for the next sync, at once. @param unfinished their Services. */
  #leave(later: ReadonlySet<string>, unfinished: ReadonlySet<string>, work: PendingWork): void {
    const services = work.services.intersection(unfinished);
    const { staleFlows, goneFrontends } = work;
    // Flows that the old rules still create are looked for once all new rules are there.
    this.#pending = merged(this.#pending, { ports: later, services, staleFlows, goneFrontends });
    this.#report.overtaken();
    this.#runner.runNow();
  }

  /** What follows the rules: health-check ports, stale flows, connections to endpoints that are gone. */
  async #followUp(
    { failures, goneFrontends, formerEndpoints }: SyncOutcome,
    work: PendingWork,
    later: ReadonlySet<string>,
    unfinished: ReadonlySet<string>,
  ): Promise<void> {
    const { serviceHealth } = this.#options;
    try {
      // A health-check port that answered before would draw clients to ports whose rules are still to come.
      const changed = work.services.difference(unfinished);
      await serviceHealth.syncServices(this.state.healthCheckNodePorts, changed);
      serviceHealth.syncEndpoints(this.state.localReadyCounts, changed);
    } catch (error) {
      this.#log.error("Error syncing healthcheck services", error);
    }
    const gone = union(work.goneFrontends, goneFrontends ?? NO_WORK.goneFrontends);
    if ((work.staleFlows || gone.size > 0) && later.size === 0) this.#staleFlows.look(gone);
    const inForce = this.#takeInForce(later.size === 0 ? work.ports : work.ports.difference(later), failures);
    for (const key of this.#inForce.keys())
      if (!this.#refusedPorts.has(key) && !later.has(key)) this.#inForce.delete(key);
    this.#goneConnections?.note(inForce, formerEndpoints);
  }

  /** The service ports, of these and the previously rejected ones, whose rules the kernel has accepted. */
  #takeInForce(ports: ReadonlySet<string>, failures: readonly SyncFailure[]): ReadonlySet<string> {
    const all = union(this.#refusedPorts, ports);
    const subjects = new Set(failures.map(({ subject }) => subject));
    this.#refusedPorts = new Set(subjects.size === 0 ? [] : [...all].filter((key) => isAmong(subjects, key)));
    return all.difference(this.#refusedPorts);
  }

  #reportFailure(error: unknown): void {
    this.#report.failed(error, this.state.services);
    const { periods } = this.#options;
    this.#log.error(SYNC_FAILED, error, { retryingTime: formatMs(Math.min(periods.syncMs, this.#fullSyncs.mostMs)) });
  }
}
