/**
 * The EndpointSlices of one family, applied and pending, and what the pending ones change: reference endpoints.md §5.1, §6.2.
 * Work follows the services whose slices changed, not the cluster.
 */
import type { Steps } from "../async/steps.ts";
import type { EndpointSliceRecord } from "../cluster/objects.ts";
import { exactList } from "../net/exact-list.ts";
import { flatText } from "../net/flat-text.ts";
import type { IpFamily } from "../net/ip.ts";
import type { Endpoint } from "./endpoint.ts";
import { equalLists } from "./equal-lists.ts";
import type { OnReplaced } from "./service-change-tracker.ts";
import type { OnProblem } from "./service-ports.ts";
import { joinSlices, type ReadSlice, readSlice } from "./slice-endpoints.ts";

export interface EndpointsChanges {
  /** `namespace/name` of every service with a pending slice change, even when its endpoints came out the same. */
  readonly updatedServices: ReadonlySet<string>;
  /** Keys of service ports whose endpoint list differs from before. */
  readonly changedPorts: ReadonlySet<string>;
  /** Whether one of these services had or has an endpoint on another protocol than TCP. */
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

interface EndpointsChangeTrackerOptions {
  readonly family: IpFamily;
  /** Empty when unknown: no endpoint is local then. */
  readonly nodeName: string;
  /** Milliseconds since the epoch, to ignore changes that were made before this process started. */
  readonly now: () => number;
  /** Tells where the clock has been set since then. @default it is not set */
  readonly monotonicMs?: (() => number) | undefined;
  readonly onProblem?: OnProblem;
  /** Called for slices that belong to no Service: other controllers may keep some, and nothing is wrong with them. */
  readonly onIgnored?: OnProblem;
}

interface PendingSlice {
  readonly record: EndpointSliceRecord;
  readonly isRemoval: boolean;
}

// A list and no map for the applied slices: nearly every service has one, and there are tens of thousands.
interface ServiceSlices {
  /** In order of slice name. */
  applied: readonly ReadSlice[];
  pending: Map<string, PendingSlice> | undefined;
}

export class EndpointsChangeTracker {
  readonly #options: EndpointsChangeTrackerOptions;
  /** By the monotonic clock. */
  readonly #createdMs: number;
  /** By `namespace/name` of the Service. */
  readonly #services = new Map<string, ServiceSlices>();
  readonly #localReadyCounts = new Map<string, number>();
  /**
   * `namespace/name` → number of distinct IPs of local ready endpoints over all ports, where it is not 0
   * (endpoints.md §6.2, helpers).
   */
  readonly localReadyCounts: ReadonlyMap<string, number> = this.#localReadyCounts;
  #pendingServices = new Set<string>();
  #triggerTimes = new Map<string, number[]>();

  constructor(options: EndpointsChangeTrackerOptions) {
    const { now, monotonicMs = now } = options;
    this.#options = options;
    this.#createdMs = monotonicMs();
  }

  /** Number of services that have an applied or pending slice. */
  get serviceCount(): number {
    return this.#services.size;
  }

  /** The applied slices of a service (`namespace/name`), by name. */
  slicesOf(service: string): readonly EndpointSliceRecord[] {
    return this.#services.get(service)?.applied.map(({ record }) => record) ?? [];
  }

  /**
   * Takes one slice event; the slice is what was written, or what was there before its removal. A change and its exact revert
   * are two changes.
   */
  update(slice: EndpointSliceRecord, isRemoval: boolean): SliceVerdict {
    const { family, onIgnored } = this.#options;
    if (slice.addressType !== family) return { accepted: false, changed: false };
    if (slice.serviceName === "") {
      const endpointSlice = `${slice.namespace}/${slice.name}`;
      const facts = { endpointSlice, field: "metadata.labels[kubernetes.io/service-name]" };
      if (!isRemoval) onIgnored?.("endpoint slice ignored: no label says which service it belongs to", facts);
      return { accepted: false, changed: false };
    }
    const service = flatText(slice.namespace, "/", slice.serviceName);
    const entry = this.#services.get(service) ?? { applied: [], pending: undefined };
    if (!isNews(entry, slice, isRemoval)) return { accepted: true, changed: false };
    this.#services.set(service, entry);
    entry.pending ??= new Map();
    entry.pending.set(slice.name, { record: slice, isRemoval });
    this.#pendingServices.add(service);
    this.#noteTriggerTime(service, slice, isRemoval);
    return { accepted: true, changed: true };
  }

  /**
   * Moves all pending changes into the live map, whose lists are sorted by text and never empty; a step for each service. What
   * comes between two steps is applied now or the next time.
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

  #fold(applied: readonly ReadSlice[], pending: ReadonlyMap<string, PendingSlice>): readonly ReadSlice[] {
    const folded = applied.filter(({ record }) => !pending.has(record.name));
    for (const { record, isRemoval } of pending.values()) {
      if (!isRemoval) folded.push(readSlice(record, this.#options, sliceNamed(applied, record.name)));
    }
    // By name, so that the outcome of overlapping slices does not depend on the order of events.
    return exactList(folded.sort((a, b) => (a.record.name < b.record.name ? -1 : 1)));
  }

  #noteTriggerTime(service: string, { lastChangeTriggerTime }: EndpointSliceRecord, isRemoval: boolean): void {
    // A removed slice takes its annotation with it: when this service changed is not known any more.
    if (isRemoval) {
      this.#triggerTimes.delete(service);
      return;
    }
    // A node without a battery begins long ago: what counts is when it began by the clock as it is now.
    const { now, monotonicMs = now } = this.#options;
    const createdMs = this.#createdMs - monotonicMs() + now();
    const timeMs = parseRfc3339Ms(lastChangeTriggerTime);
    if (timeMs === undefined || timeMs <= createdMs) return;
    const times = this.#triggerTimes.get(service);
    if (times === undefined) this.#triggerTimes.set(service, [timeMs]);
    else times.push(timeMs);
  }
}

/** Whether a slice differs from its pending state, or from the applied one if none is pending. */
function isNews({ applied, pending }: ServiceSlices, slice: EndpointSliceRecord, isRemoval: boolean): boolean {
  const waiting = pending?.get(slice.name);
  if (waiting !== undefined) return waiting.isRemoval !== isRemoval || !equalSlices(waiting.record, slice);
  const known = sliceNamed(applied, slice.name);
  return known === undefined ? !isRemoval : isRemoval || !equalSlices(known.record, slice);
}

function sliceNamed(slices: readonly ReadSlice[], name: string): ReadSlice | undefined {
  return slices.find(({ record }) => record.name === name);
}

/**
 * Whether two deliveries are the same object (endpoints.md §6.2 step 2). Resource version and order of elements count: a
 * metadata-only edit is a change, a resync is not.
 */
function equalSlices(a: EndpointSliceRecord, b: EndpointSliceRecord): boolean {
  return a === b || (a.resourceVersion === b.resourceVersion && JSON.stringify(a) === JSON.stringify(b));
}

/** Counts by address: an endpoint that is reachable on two ports is one (endpoints.md §6.2). */
function countLocalReady(lists: Iterable<readonly Endpoint[]>): number {
  const addresses = new Set<string>();
  for (const list of lists) for (const { ip, isLocal, isReady } of list) if (isLocal && isReady) addresses.add(ip);
  return addresses.size;
}

const RFC3339 = /^(\d{4}-\d{2}-(\d{2})T\d{2}:\d{2}:\d{2})(\.\d+)?(?:Z|([+-])(\d{2}):(\d{2}))$/;

/**
 * Parses an RFC 3339 time with up to nanoseconds, as the last-change-trigger-time annotation has it (reference endpoints.md §6.2). Pure.
 *
 * @returns milliseconds since the epoch, with the rest as a fraction (precise to about 0.25 µs), or `undefined` when the
 * text is not a time.
 */
export function parseRfc3339Ms(text: string): number | undefined {
  const [, whole, day, fraction = "", sign, hours = "0", minutes = "0"] = RFC3339.exec(text) ?? [];
  const timeMs = Date.parse(`${whole}Z`);
  // Date.parse rolls the 31st of February over and knows 24:00; both are refused here.
  if (new Date(timeMs).getUTCDate() !== Number(day)) return undefined;
  // As upstream, an offset of 24 hours is one, which Date.parse refuses.
  if (Number(hours) > 24 || Number(minutes) > 59) return undefined;
  const offsetMs = (Number(hours) * 60 + Number(minutes)) * 60_000;
  return timeMs + Number(`0${fraction}`) * 1000 - (sign === "-" ? -offsetMs : offsetMs);
}
