/**
 * Endpoint changes that the kernel does not know yet, for one family: reference endpoints.md §6.2. Work follows the services
 * whose slices changed, not the cluster.
 */
import { runAtOnce, type Steps } from "../async/steps.ts";
import type { EndpointSliceRecord } from "../cluster/objects.ts";
import type { IpFamily } from "../net/ip.ts";
import { type Endpoint, equalEndpointLists } from "./endpoint.ts";
import { EndpointSliceCache, owningService, sliceRefusal } from "./endpoint-slice-cache.ts";
import type { OnProblem } from "./problem.ts";
import type { OnReplaced } from "./service-change-tracker.ts";
import { joinSlices, type ReadSlice } from "./slice-endpoints.ts";
import { isEarlierText, parseRfc3339Ms, secondText } from "./trigger-time.ts";

export interface EndpointsChanges {
  /** `namespace/name` of every service with a pending slice change, even when its endpoints came out the same. */
  readonly updatedServices: ReadonlySet<string>;
  /** Keys of service ports whose endpoint list differs from before. */
  readonly changedPorts: ReadonlySet<string>;
  /** Whether one of these services had or has an endpoint on UDP. */
  readonly conntrackCleanupRequired: boolean;
  /** By service: when the changes were caused, in milliseconds since the epoch. */
  readonly lastChangeTriggerTimes: ReadonlyMap<string, readonly number[]>;
}

/** What became of a slice event. */
export interface SliceVerdict {
  /** The slice is one of this family's services (endpoints.md §5.1). */
  readonly accepted: boolean;
  /** This very event changed something. */
  readonly changed: boolean;
}

const REFUSED: SliceVerdict = { accepted: false, changed: false };
const UNCHANGED: SliceVerdict = { accepted: true, changed: false };
const CHANGED: SliceVerdict = { accepted: true, changed: true };

interface EndpointsChangeTrackerOptions {
  readonly family: IpFamily;
  /** Empty when unknown: no endpoint is local then. */
  readonly nodeName: string;
  /** Milliseconds since the epoch; read once, to ignore changes that were made before this process started. */
  readonly now: () => number;
  readonly onProblem?: OnProblem;
  /** Told of slices that belong to no Service: other controllers may keep some, and nothing is wrong with them. */
  readonly onIgnored?: OnProblem;
}

export class EndpointsChangeTracker {
  readonly #family: IpFamily;
  readonly #onIgnored: OnProblem | undefined;
  readonly #createdMs: number;
  readonly #createdSecond: string;
  readonly #cache: EndpointSliceCache;
  readonly #localReadyCounts = new Map<string, number>();
  #triggerTimes = new Map<string, number[]>();

  constructor(options: EndpointsChangeTrackerOptions) {
    this.#family = options.family;
    this.#onIgnored = options.onIgnored;
    this.#createdMs = options.now();
    this.#createdSecond = secondText(this.#createdMs);
    this.#cache = new EndpointSliceCache(options);
  }

  /**
   * `namespace/name` → number of distinct IPs of local ready endpoints over all ports, where it is not 0
   * (endpoints.md §6.2, helpers).
   */
  get localReadyCounts(): ReadonlyMap<string, number> {
    return this.#localReadyCounts;
  }

  /** Number of services that something is remembered of. */
  get serviceCount(): number {
    return this.#cache.serviceCount;
  }

  /** The applied slices of a service (`namespace/name`), by name. */
  slicesOf(service: string): readonly EndpointSliceRecord[] {
    return this.#cache.recordsOf(service);
  }

  /** Takes one slice event; the slice is what was written, or what was there before its removal. */
  update(slice: EndpointSliceRecord, isRemoval: boolean): SliceVerdict {
    const refusal = sliceRefusal(slice, this.#family);
    if (refusal !== undefined) {
      if (refusal === "no-service" && !isRemoval) this.#reportOwnerless(slice);
      return REFUSED;
    }
    if (!this.#cache.updatePending(slice, isRemoval)) return UNCHANGED;
    this.#noteTriggerTime(slice, isRemoval);
    return CHANGED;
  }

  /** Moves all pending changes into the live map, whose lists are sorted by text and never empty. */
  apply(live: Map<string, readonly Endpoint[]>, onReplaced?: OnReplaced<readonly Endpoint[]>): EndpointsChanges {
    return runAtOnce(this.applying(live, onReplaced));
  }

  /** {@link apply} in steps, one for each service. What comes between them is applied now or the next time. */
  *applying(
    live: Map<string, readonly Endpoint[]>,
    onReplaced?: OnReplaced<readonly Endpoint[]>,
  ): Steps<EndpointsChanges> {
    const lastChangeTriggerTimes = this.#triggerTimes;
    this.#triggerTimes = new Map();
    const updatedServices = new Set<string>();
    const changedPorts = new Set<string>();
    const note: OnReplaced<readonly Endpoint[]> = (key, before, after) => {
      changedPorts.add(key);
      onReplaced?.(key, before, after);
    };
    let conntrackCleanupRequired = false;
    for (const { service, previous, current } of this.#cache.checkout()) {
      updatedServices.add(service);
      conntrackCleanupRequired ||= hasOtherThanTcp(previous) || hasOtherThanTcp(current);
      const endpoints = joinSlices(current);
      replaceEndpoints(live, previous, endpoints, note);
      const localReady = countLocalReady(endpoints);
      if (localReady === 0) this.#localReadyCounts.delete(service);
      else this.#localReadyCounts.set(service, localReady);
      yield;
    }
    return { updatedServices, changedPorts, conntrackCleanupRequired, lastChangeTriggerTimes };
  }

  #noteTriggerTime(slice: EndpointSliceRecord, isRemoval: boolean): void {
    const service = owningService(slice);
    // A removed slice takes its annotation with it, and with it the claim to know when this service changed.
    if (isRemoval) {
      this.#triggerTimes.delete(service);
      return;
    }
    if (isEarlierText(slice.lastChangeTriggerTime, this.#createdSecond)) return;
    const timeMs = parseRfc3339Ms(slice.lastChangeTriggerTime);
    if (timeMs === undefined || timeMs <= this.#createdMs) return;
    const times = this.#triggerTimes.get(service);
    if (times === undefined) this.#triggerTimes.set(service, [timeMs]);
    else times.push(timeMs);
  }

  #reportOwnerless({ namespace, name }: EndpointSliceRecord): void {
    const facts = { endpointSlice: `${namespace}/${name}`, field: "metadata.labels[kubernetes.io/service-name]" };
    this.#onIgnored?.("endpoint slice ignored: no label says which service it belongs to", facts);
  }
}

function replaceEndpoints(
  live: Map<string, readonly Endpoint[]>,
  previous: readonly ReadSlice[],
  current: ReadonlyMap<string, readonly Endpoint[]>,
  onReplaced: OnReplaced<readonly Endpoint[]>,
): void {
  for (const slice of previous) {
    for (const { key } of slice.ports) {
      const before = current.has(key) ? undefined : live.get(key);
      if (before === undefined) continue;
      live.delete(key);
      onReplaced(key, before, undefined);
    }
  }
  for (const [key, endpoints] of current) {
    const before = live.get(key);
    live.set(key, endpoints);
    if (before === undefined || !equalEndpointLists(before, endpoints)) onReplaced(key, before, endpoints);
  }
}

function hasOtherThanTcp(slices: readonly ReadSlice[]): boolean {
  return slices.some((slice) => slice.ports.some(({ key }) => !key.endsWith("/TCP")));
}

/** Counts by address: an endpoint that is reachable on two ports is one (endpoints.md §6.2). */
function countLocalReady(endpoints: ReadonlyMap<string, readonly Endpoint[]>): number {
  let first: string | undefined;
  let several: Set<string> | undefined;
  for (const list of endpoints.values()) {
    for (const { ip, isLocal, isReady } of list) {
      if (!isLocal || !isReady || ip === first) continue;
      if (first === undefined) first = ip;
      else several = (several ?? new Set([first])).add(ip);
    }
  }
  return several?.size ?? (first === undefined ? 0 : 1);
}
