/**
 * Whether the proxy keeps up with the API, and whether load balancers should use this node (reference health.md §15).
 *
 * The question is not "when was the last sync" but "has a requested sync waited too long": an idle proxy is healthy.
 */

import type { Clock } from "../../../async/clock.ts";
import type { Backend, SyncFailure } from "../../../contract/backend.ts";
import type { HealthReporter } from "../../../contract/observers.ts";
import type { NodeRecord } from "../../../model/objects.ts";
import { IP_FAMILIES, type IpFamily } from "../../../net/ip.ts";

/** The taint that the cluster autoscaler sets on a node it is about to remove. */
const TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler";

/** A family whose loop runs. */
interface FamilyHealth {
  readonly family: IpFamily;
  /** Unix milliseconds; until the first successful sync, the start of its loop, as upstream has it. */
  readonly lastUpdatedMs: number;
  /** Whole milliseconds since a successful sync, unaffected by clock changes; null before the first. */
  readonly syncedAgoMs: number | null;
  readonly isHealthy: boolean;
  /** What the mode says of its work; asking may cost it something. */
  readonly remarks: readonly string[];
}

/** What the start waits for, a part of the rules that the kernel rejects, a taken health-check port, a resource that cannot be watched, or a start-up taint that may not be removed. All are retried. */
interface StandingFailure extends SyncFailure {
  /** Absent if it does not concern a single family. */
  readonly ipFamily?: IpFamily;
}

/** The state at one moment. */
export interface HealthVerdict {
  /** Unix milliseconds. */
  readonly nowMs: number;
  /** All known families are healthy; true when none is known yet. */
  readonly isHealthy: boolean;
  /** The Node object is known, not being deleted and not marked for removal. */
  readonly isNodeEligible: boolean;
  /** Connections get through the rules, as far as that was probed. */
  readonly isReached: boolean;
  /** IPv4 before IPv6; families never updated are absent. */
  readonly families: readonly FamilyHealth[];
  /** How long the API server has been silent about its least recently mentioned resource, in whole milliseconds. @default unknown */
  readonly silentMs?: number | undefined;
  readonly failures: readonly StandingFailure[];
  /** Features that work in a degraded way: no reason to send traffic to another node. */
  readonly degraded: readonly StandingFailure[];
}

/** The result of a connection through the rules; undefined: all is well. A failure is this node's fault. */
export type ProbeFinding = { readonly isFailure: boolean; readonly reason: string } | undefined;

/** What a mode reports about itself whenever asked. */
type SelfReport = Pick<Backend, "remarks" | "degraded">;

function ofFamily(family: IpFamily, failures: readonly SyncFailure[]): readonly StandingFailure[] {
  return failures.map(({ subject, reason }) => ({ ipFamily: family, subject, reason }));
}

/** Stands in for a family without a backend. */
const NOT_AT_WORK: SelfReport = {};

class FamilyState {
  /** Monotonic time of the last sync that brought its rules into the kernel. */
  syncedMs: number | undefined;
  lastUpdatedMs: number | undefined;
  /** Monotonic time of the oldest request that no sync has satisfied. */
  oldestPendingMs: number | undefined;
  mode = NOT_AT_WORK;
  failures: () => readonly SyncFailure[] = () => [];
}

export class ProxyHealth implements HealthReporter {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #states: Readonly<Record<IpFamily, FamilyState>> = {
    IPv4: new FamilyState(),
    IPv6: new FamilyState(),
  };
  readonly #clusterFailures = new Map<string, string>();
  /** Monotonic time, by resource. */
  readonly #heardMs = new Map<string, number>();
  #isNodeEligible = false;
  #probe: { readonly subject: string; readonly look: () => Promise<ProbeFinding> } | undefined;
  #finding: ProbeFinding;
  #waiting: { readonly reason: string; readonly sinceMs: number } | undefined;

  /** @param options `syncPeriodMs`: a request may wait for less than twice this time. */
  constructor(options: { readonly clock: Clock; readonly syncPeriodMs: number }) {
    this.#clock = options.clock;
    this.#timeoutMs = 2 * options.syncPeriodMs;
  }

  /** Upstream's `lastUpdated` begins here, before any sync. */
  started(family: IpFamily): void {
    const state = this.#states[family];
    state.oldestPendingMs = undefined;
    state.lastUpdatedMs = this.#clock.now();
  }

  updated(family: IpFamily): void {
    this.started(family);
    this.#states[family].syncedMs = this.#clock.monotonicMs();
  }

  queuedUpdate(family: IpFamily): void {
    this.#states[family].oldestPendingMs ??= this.#clock.monotonicMs();
  }

  /** Takes the latest state of this node's Node object. A deletion without an update before it changes nothing, so do not report it. */
  onNode(node: NodeRecord): void {
    this.#isNodeEligible = !node.isBeingDeleted && !node.taintKeys.includes(TO_BE_DELETED_TAINT);
  }

  /** A family is served. Each verdict asks the mode, and for what the kernel rejects and the ports that cannot be opened. */
  setMode(family: IpFamily, mode: SelfReport, failures: () => readonly SyncFailure[] = () => []): void {
    Object.assign(this.#states[family], { mode, failures });
  }

  /**
   * The API server does not do something, or does it again (`undefined`). Only reported in the answers: the last known
   * good rules are in force, and another node would be no better off.
   *
   * @param subject `watch of services`
   */
  setClusterFailure(subject: string, reason: string | undefined): void {
    if (reason === undefined) this.#clusterFailures.delete(subject);
    else this.#clusterFailures.set(subject, reason);
  }

  /** The API server has sent something about a resource. */
  setHeard(resource: string): void {
    this.#heardMs.set(resource, this.#clock.monotonicMs());
  }

  /**
   * The program must wait for its host before it can program anything, or no longer does (`undefined`). Shown at once;
   * counts as a pending request.
   */
  setWaiting(reason: string | undefined): void {
    this.#waiting =
      reason === undefined ? undefined : { reason, sinceMs: this.#waiting?.sinceMs ?? this.#clock.monotonicMs() };
  }

  /** @param subject what is probed, in words. */
  setProbe(subject: string, look: () => Promise<ProbeFinding>): void {
    this.#probe = { subject, look };
  }

  /** Probes whether connections get through the rules, if there is a probe. The finding is part of the verdict. */
  async look(): Promise<void> {
    this.#finding = await this.#probe?.look();
  }

  /** Whether the proxiers keep up: what the per-service health ports ask. */
  isHealthy(): boolean {
    if (this.#waiting !== undefined && !this.#isInTime(this.#waiting.sinceMs)) return false;
    return IP_FAMILIES.every((family) => this.#isFamilyHealthy(this.#states[family]));
  }

  /**
   * Whether the rules of each family in service are in the kernel and the proxiers keep up: what a rollout waits for.
   * Upstream has no such answer; its /livez is healthy before the first sync, and its /healthz also covers the Node.
   */
  isReady(): boolean {
    const served = IP_FAMILIES.map((family) => this.#states[family]).filter(({ mode }) => mode !== NOT_AT_WORK);
    return served.length > 0 && served.every(({ syncedMs }) => syncedMs !== undefined) && this.isHealthy();
  }

  verdict(): HealthVerdict {
    const monotonicMs = this.#clock.monotonicMs();
    const families: FamilyHealth[] = [];
    for (const family of IP_FAMILIES) {
      const state = this.#states[family];
      if (state.lastUpdatedMs === undefined) continue;
      const { lastUpdatedMs, syncedMs, mode } = state;
      const syncedAgoMs = syncedMs === undefined ? null : Math.round(monotonicMs - syncedMs);
      families.push({
        ...{ family, lastUpdatedMs, syncedAgoMs, isHealthy: this.#isFamilyHealthy(state) },
        get remarks() {
          return mode.remarks ?? [];
        },
      });
    }
    const finding = this.#finding;
    const found = finding === undefined ? [] : [{ subject: this.#probe?.subject ?? "", reason: finding.reason }];
    const isReached = finding?.isFailure !== true;
    return {
      nowMs: this.#clock.now(),
      isReached,
      isHealthy: this.isHealthy(),
      isNodeEligible: this.#isNodeEligible,
      families,
      silentMs: this.#heardMs.size === 0 ? undefined : Math.round(monotonicMs - Math.min(...this.#heardMs.values())),
      failures: [
        ...(this.#waiting === undefined ? [] : [{ subject: "start", reason: this.#waiting.reason }]),
        ...IP_FAMILIES.flatMap((family) => ofFamily(family, this.#states[family].failures())),
        ...Array.from(this.#clusterFailures, ([subject, reason]) => ({ subject, reason })),
        ...(isReached ? [] : found),
      ],
      degraded: [
        ...IP_FAMILIES.flatMap((family) => ofFamily(family, this.#states[family].mode.degraded ?? [])),
        ...(isReached ? found : []),
      ],
    };
  }

  #isFamilyHealthy({ lastUpdatedMs, oldestPendingMs }: FamilyState): boolean {
    if (lastUpdatedMs === undefined || oldestPendingMs === undefined) return true;
    return this.#isInTime(oldestPendingMs);
  }

  /** @param sinceMs monotonic: when the wait began. */
  #isInTime(sinceMs: number): boolean {
    return this.#clock.monotonicMs() - sinceMs < this.#timeoutMs;
  }
}
