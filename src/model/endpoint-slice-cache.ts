/**
 * The endpoint slices of every service of one family, applied and pending: reference endpoints.md §5.1 and §6.2. Knows which
 * slices changed; what that does to the live map is the endpoints change tracker's business.
 */

import type { EndpointSliceRecord } from "../cluster/objects.ts";
import { exactList } from "../net/exact-list.ts";
import { flatText } from "../net/flat-text.ts";
import { equalSlices } from "./endpoint-slice-equality.ts";
import { type ReadSlice, readSlice, type SliceReader } from "./slice-endpoints.ts";

/** The slices of one service before and after its pending changes, each in order of slice name. */
interface SlicesChange {
  readonly service: string;
  readonly previous: readonly ReadSlice[];
  readonly current: readonly ReadSlice[];
}

interface PendingSlice {
  readonly record: EndpointSliceRecord;
  readonly isRemoval: boolean;
}

// A list and no map for the applied slices: nearly every service has one, and there are tens of thousands.
interface ServiceSlices {
  applied: readonly ReadSlice[];
  pending: Map<string, PendingSlice> | undefined;
}

/** Why a slice is not for this family's tracker, or `undefined` when it is (endpoints.md §5.1). Pure. */
export function sliceRefusal(slice: EndpointSliceRecord, family: string): "family" | "no-service" | undefined {
  if (slice.addressType !== family) return "family";
  return slice.serviceName === "" ? "no-service" : undefined;
}

export class EndpointSliceCache {
  readonly #reader: SliceReader;
  readonly #services = new Map<string, ServiceSlices>();
  #pendingServices = new Set<string>();

  constructor(reader: SliceReader) {
    this.#reader = reader;
  }

  /** Number of services that have an applied or pending slice. */
  get serviceCount(): number {
    return this.#services.size;
  }

  /** The applied slices of a service, by name. */
  recordsOf(service: string): readonly EndpointSliceRecord[] {
    return this.#services.get(service)?.applied.map(({ record }) => record) ?? [];
  }

  /**
   * Notes that an accepted slice was written or removed.
   *
   * @returns whether that differs from the pending state of the slice, or from the applied one if none is pending. A
   * change and its exact revert are therefore two changes.
   */
  updatePending(record: EndpointSliceRecord, isRemoval: boolean): boolean {
    const service = owningService(record);
    const known = this.#services.get(service);
    const pending = known?.pending?.get(record.name);
    if (pending !== undefined) {
      if (pending.isRemoval === isRemoval && equalSlices(pending.record, record)) return false;
    } else {
      const applied = known?.applied.find((slice) => slice.record.name === record.name);
      if (applied === undefined ? isRemoval : !isRemoval && equalSlices(applied.record, record)) return false;
    }
    const entry = known ?? { applied: [], pending: undefined };
    if (known === undefined) this.#services.set(service, entry);
    entry.pending ??= new Map();
    entry.pending.set(record.name, { record, isRemoval });
    this.#pendingServices.add(service);
    return true;
  }

  /**
   * Applies all pending slices and hands over, one by one, what each service had and has. Services left empty are forgotten.
   * What comes between two of them is handed over now or the next time.
   */
  *checkout(): Iterable<SlicesChange> {
    const services = this.#pendingServices;
    this.#pendingServices = new Set();
    for (const service of services) {
      const entry = this.#services.get(service);
      if (entry?.pending === undefined) continue;
      const previous = entry.applied;
      entry.applied = this.#fold(previous, entry.pending);
      entry.pending = undefined;
      if (entry.applied.length === 0) this.#services.delete(service);
      yield { service, previous, current: entry.applied };
    }
  }

  #fold(applied: readonly ReadSlice[], pending: ReadonlyMap<string, PendingSlice>): readonly ReadSlice[] {
    const folded = applied.filter((slice) => !pending.has(slice.record.name));
    for (const { record, isRemoval } of pending.values()) {
      if (isRemoval) continue;
      const before = applied.find((slice) => slice.record.name === record.name);
      folded.push(readSlice(record, this.#reader, before));
    }
    // By name, so that the outcome of overlapping slices does not depend on the order of events.
    return exactList(folded.sort((a, b) => (a.record.name < b.record.name ? -1 : 1)));
  }
}

/** `namespace/name` of the service that a slice belongs to. Pure. */
export function owningService(slice: EndpointSliceRecord): string {
  return flatText(slice.namespace, "/", slice.serviceName);
}
