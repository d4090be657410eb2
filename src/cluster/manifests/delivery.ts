/** The difference between two sets of records, told to a sink. */
import { isDeepStrictEqual } from "../../kernel/node-util.ts";
import type { ObjectKind, ObjectSink } from "../object-source.ts";
import type { ObjectEntry } from "../projection/object-entry.ts";
import type { RecordMaps } from "./merge.ts";

/** Kinds in the order of delivery. */
export const DELIVERY_ORDER = ["nodes", "serviceCIDRs", "services", "endpointSlices"] as const;

/** Before anything was delivered. */
export const NO_RECORDS: RecordMaps = {
  nodes: new Map(),
  serviceCIDRs: new Map(),
  services: new Map(),
  endpointSlices: new Map(),
};

/**
 * Tells the sink what changed, kind by kind: additions and updates in the order of the folder, then deletions. Records
 * of equal content are not an update, even where fields differ that no record has.
 *
 * @returns the records as the sink now knows them, to be given as `before` the next time.
 */
export function deliver(before: RecordMaps, now: RecordMaps, sink: ObjectSink): RecordMaps {
  return {
    nodes: deliverKind("nodes", before.nodes, now.nodes, sink),
    serviceCIDRs: deliverKind("serviceCIDRs", before.serviceCIDRs, now.serviceCIDRs, sink),
    services: deliverKind("services", before.services, now.services, sink),
    endpointSlices: deliverKind("endpointSlices", before.endpointSlices, now.endpointSlices, sink),
  };
}

function deliverKind<K extends ObjectKind>(
  kind: K,
  before: ReadonlyMap<string, ObjectEntry<K>>,
  now: ReadonlyMap<string, ObjectEntry<K>>,
  sink: ObjectSink,
): ReadonlyMap<string, ObjectEntry<K>> {
  const known = new Map<string, ObjectEntry<K>>();
  for (const [key, entry] of now) {
    const old = before.get(key);
    if (old === undefined) sink.onEvent(kind, { kind: "add", object: entry.record });
    else if (old.digest === entry.digest || isDeepStrictEqual(old.record, entry.record)) {
      known.set(key, { ...entry, record: old.record });
      continue;
    } else sink.onEvent(kind, { kind: "update", old: old.record, object: entry.record });
    known.set(key, entry);
  }
  for (const [key, entry] of before) {
    if (!now.has(key)) sink.onEvent(kind, { kind: "delete", object: entry.record });
  }
  return known;
}
