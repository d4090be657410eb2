/**
 * Tracks the applied and pending EndpointSlices of one family, and what the pending ones change (reference endpoints.md
 * §5.1, §6.2). The work depends on the services whose slices changed, not on the cluster's size.
 */
import type { Steps } from "../async/turns.ts";
import type { Logger } from "../logging/logger.ts";
import { exactList, flatText } from "../net/compact.ts";
import type { IpFamily } from "../net/ip.ts";
import { isDrained } from "./cells.ts";
import type { Endpoint } from "./endpoint.ts";
import { type EndpointSliceRecord, equalLists } from "./objects.ts";
import type { OnReplaced } from "./service-change-tracker.ts";
import { joinSlices, type ReadSlice, readSlice, type SliceReader } from "./slice-endpoints.ts";

export interface EndpointsChanges {
  /** `namespace/name` of every service with a pending slice change, even if its endpoints stayed the same. */
  readonly updatedServices: ReadonlySet<string>;
  /** Keys of service ports whose endpoint list changed. */
  readonly changedPorts: ReadonlySet<string>;
  /** Whether one of these services had or has an endpoint of a protocol other than TCP. */
  readonly conntrackCleanupRequired: boolean;
  /** By service: the trigger times of the changes, in milliseconds since the epoch. */
  readonly lastChangeTriggerTimes: ReadonlyMap<string, readonly number[]>;
}

/** The outcome of a slice event. */
export interface SliceVerdict {
  /** The slice belongs to a service of this family (endpoints.md §5.1). */
  readonly accepted: boolean;
  /** This event changed something. */
  readonly changed: boolean;
}

export interface EndpointsChangeTrackerOptions {
  readonly family: IpFamily;
  /** Empty if unknown; then no endpoint is local. */
  readonly nodeName: string;
  /** Milliseconds since the epoch, for ignoring changes from before this process started. */
  readonly now: () => number;
  /** Monotonic time, which reveals that the clock was set. @default the clock is never set */
  readonly monotonicMs?: (() => number) | undefined;
  readonly log: Logger;
}

/** By slice name; undefined for a slice that is removed. */
type PendingSlices = Map<string, EndpointSliceRecord | undefined>;

// A list rather than a map of applied slices: nearly all of the tens of thousands of services have just one.
interface ServiceSlices {
  /** Sorted by slice name. */
  applied: readonly ReadSlice[];
  pending: PendingSlices | undefined;
}

export class EndpointsChangeTracker {
  readonly #options: EndpointsChangeTrackerOptions;
  /** Monotonic time. */
  readonly #createdMs: number;
  /** By `namespace/name` of the Service. */
  readonly #services = new Map<string, ServiceSlices>();
  readonly #localReadyCounts = new Map<string, number>();
  /**
   * `namespace/name` → number of distinct IPs of local ready endpoints over all ports, unless it is 0 (endpoints.md
   * §6.2, helpers).
   */
  readonly localReadyCounts: ReadonlyMap<string, number> = this.#localReadyCounts;
  #pendingServices = new Set<string>();
  #triggerTimes = new Map<string, number[]>();

  constructor(options: EndpointsChangeTrackerOptions) {
    const { now, monotonicMs = now } = options;
    this.#options = options;
    this.#createdMs = monotonicMs();
  }

  /** Number of services with an applied or pending slice. */
  get serviceCount(): number {
    return this.#services.size;
  }

  /** The applied slices of a service (`namespace/name`), by name. */
  slicesOf(service: string): readonly EndpointSliceRecord[] {
    return this.#services.get(service)?.applied.map(({ record }) => record) ?? [];
  }

  /**
   * Records one slice event; for a removal, `slice` is the last version. A change and its exact revert count as two
   * changes.
   */
  update(slice: EndpointSliceRecord, isRemoval: boolean): SliceVerdict {
    const { family, log } = this.#options;
    if (slice.addressType !== family) return { accepted: false, changed: false };
    if (slice.serviceName === "") {
      const endpointSlice = `${slice.namespace}/${slice.name}`;
      const facts = { endpointSlice, field: "metadata.labels[kubernetes.io/service-name]" };
      // Other controllers may legitimately own some.
      if (!isRemoval) log.v(4, "endpoint slice ignored: no label says which service it belongs to", facts);
      return { accepted: false, changed: false };
    }
    const service = flatText(slice.namespace, "/", slice.serviceName);
    const entry = this.#services.get(service) ?? { applied: [], pending: undefined };
    const after = isRemoval ? undefined : slice;
    if (isSameVersion(lastOf(entry, slice.name), after)) return { accepted: true, changed: false };
    this.#services.set(service, entry);
    entry.pending ??= new Map();
    entry.pending.set(slice.name, after);
    this.#pendingServices.add(service);
    this.#noteTriggerTime(service, slice, isRemoval);
    return { accepted: true, changed: true };
  }

  /**
   * Moves all pending changes into the live map, whose lists are sorted by text and never empty, one step per service.
   * Events between two steps are applied now or in the next call.
   */
  *apply(
    live: Map<string, readonly Endpoint[]>,
    onReplaced?: OnReplaced<readonly Endpoint[]>,
  ): Steps<EndpointsChanges> {
    const lastChangeTriggerTimes = this.#triggerTimes;
    this.#triggerTimes = new Map();
    const services = this.#pendingServices;
    this.#pendingServices = new Set();
    const updatedServices = new Set<string>();
    const changedPorts = new Set<string>();
    let conntrackCleanupRequired = false;
    for (const service of services) {
      const entry = this.#services.get(service);
      if (entry?.pending === undefined) continue;
      const previous = entry.applied;
      entry.applied = this.#fold(previous, entry.pending);
      entry.pending = undefined;
      if (entry.applied.length === 0) this.#services.delete(service);
      updatedServices.add(service);
      const current = joinSlices(entry.applied);
      const note = (key: string, before: readonly Endpoint[] | undefined, after: readonly Endpoint[] | undefined) => {
        changedPorts.add(key);
        onReplaced?.(key, before, after);
      };
      for (const { ports } of previous) {
        for (const { key } of ports) {
          conntrackCleanupRequired ||= !key.endsWith("/TCP");
          const before = current.has(key) ? undefined : live.get(key);
          if (before !== undefined && live.delete(key)) note(key, before, undefined);
        }
      }
      for (const [key, after] of current) {
        conntrackCleanupRequired ||= !key.endsWith("/TCP");
        const before = live.get(key);
        live.set(key, after);
        if (before === undefined || !equalLists(before, after)) note(key, before, after);
      }
      const localReady = countLocalReady(current.values());
      if (localReady === 0) this.#localReadyCounts.delete(service);
      else this.#localReadyCounts.set(service, localReady);
      yield;
    }
    return { updatedServices, changedPorts, conntrackCleanupRequired, lastChangeTriggerTimes };
  }

  #fold(applied: readonly ReadSlice[], pending: PendingSlices): readonly ReadSlice[] {
    const { nodeName, log } = this.#options;
    const reader: SliceReader = { nodeName, onProblem: (message, facts) => log.error(message, undefined, facts) };
    const folded = applied.filter(({ record }) => !pending.has(record.name));
    for (const record of pending.values()) {
      if (record !== undefined) folded.push(readSlice(record, reader, sliceNamed(applied, record.name)));
    }
    // Sorted by name, so that the result for overlapping slices does not depend on the order of events.
    return exactList(folded.sort((a, b) => (a.record.name < b.record.name ? -1 : 1)));
  }

  #noteTriggerTime(service: string, { lastChangeTriggerTime }: EndpointSliceRecord, isRemoval: boolean): void {
    // A removed slice loses its annotation, so the time of the service's change is unknown.
    if (isRemoval) {
      this.#triggerTimes.delete(service);
      return;
    }
    // A node without a battery-backed clock starts in the past: converts the start time to the current clock.
    const { now, monotonicMs = now } = this.#options;
    const createdMs = this.#createdMs - monotonicMs() + now();
    const timeMs = parseRfc3339Ms(lastChangeTriggerTime);
    if (timeMs === undefined || timeMs <= createdMs) return;
    const times = this.#triggerTimes.get(service);
    if (times === undefined) this.#triggerTimes.set(service, [timeMs]);
    else times.push(timeMs);
  }
}

/** The pending version of a slice, or the applied one if none is pending. */
function lastOf({ applied, pending }: ServiceSlices, name: string): EndpointSliceRecord | undefined {
  return pending?.has(name) ? pending.get(name) : sliceNamed(applied, name)?.record;
}

function sliceNamed(slices: readonly ReadSlice[], name: string): ReadSlice | undefined {
  return slices.find(({ record }) => record.name === name);
}

/**
 * Whether two slices are the same version (endpoints.md §6.2 step 2), or there are none. Resource version and element
 * order count: a metadata-only edit is a change, a resync is not.
 */
function isSameVersion(a: EndpointSliceRecord | undefined, b: EndpointSliceRecord | undefined): boolean {
  return a === b || (a?.resourceVersion === b?.resourceVersion && JSON.stringify(a) === JSON.stringify(b));
}

/** Counts addresses: an endpoint on two ports counts once (endpoints.md §6.2). */
function countLocalReady(lists: Iterable<readonly Endpoint[]>): number {
  const addresses = new Set<string>();
  for (const list of lists) {
    for (const one of list) if (one.isLocal && one.isReady && !isDrained(one)) addresses.add(one.ip);
  }
  return addresses.size;
}

const RFC3339 = /^(\d{4}-\d{2}-(\d{2})T\d{2}:\d{2}:\d{2})(\.\d+)?(?:Z|([+-])(\d{2}):(\d{2}))$/;

/**
 * Parses an RFC 3339 time with up to nanoseconds, as in the last-change-trigger-time annotation (endpoints.md §6.2).
 *
 * @returns milliseconds since the epoch, including the fraction (precise to about 0.25 µs), or `undefined` if the text
 * is not a time.
 */
export function parseRfc3339Ms(text: string): number | undefined {
  const [, whole, day, fraction = "", sign, hours = "0", minutes = "0"] = RFC3339.exec(text) ?? [];
  const timeMs = Date.parse(`${whole}Z`);
  // Date.parse turns 31 February into a day in March and accepts 24:00; both are refused here.
  if (new Date(timeMs).getUTCDate() !== Number(day)) return undefined;
  // As upstream, an offset of 24 hours is valid, although Date.parse rejects it.
  if (Number(hours) > 24 || Number(minutes) > 59) return undefined;
  const offsetMs = (Number(hours) * 60 + Number(minutes)) * 60_000;
  return timeMs + Number(`0${fraction}`) * 1000 - (sign === "-" ? -offsetMs : offsetMs);
}
