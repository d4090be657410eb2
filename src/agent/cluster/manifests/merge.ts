/** All files of a folder → the effective objects and their records. */

import { isDeepStrictEqual } from "../../../async/node-util.ts";
import type { ManifestProblem } from "../../../model/manifest-problem.ts";
import type { ObjectKind, ObjectKinds, ObjectSink } from "../../../model/object-source.ts";
import { recordKey } from "../../../model/objects.ts";
import type { KindRecord } from "../../../model/projection/project-object.ts";
import type { FileState } from "./file-state.ts";
import { duplicateProblem, type ManifestObject } from "./manifest-objects.ts";

/** The records of each kind, by {@link recordKey}. */
export type RecordMaps = { readonly [K in ObjectKind]: ReadonlyMap<string, ObjectKinds[K]> };

/**
 * Takes each object from the first file, in path order, that defines it. An object with only bad definitions left (it
 * moved to another file and broke there) keeps its previous version.
 *
 * @param files in path order. @returns also `duplicates`: objects that several files define.
 */
export function mergeFiles(files: readonly FileState[], before: ReadonlyMap<string, ManifestObject>) {
  const objects = new Map<string, ManifestObject>();
  const duplicates: ManifestProblem[] = [];
  for (const file of files) {
    for (const object of file.objects.values()) {
      if (file.leftIds.has(object.id)) continue;
      const first = objects.get(object.id);
      if (first === undefined) objects.set(object.id, object);
      else duplicates.push(duplicateProblem(object, first));
    }
  }
  // Previous versions of objects that no file defines validly now.
  const keep = (ids: ReadonlySet<string>, held: ReadonlyMap<string, ManifestObject>): void => {
    for (const id of ids) {
      const object = held.get(id);
      if (object !== undefined && !objects.has(id)) objects.set(id, object);
    }
  };
  for (const file of files) keep(file.leftIds, file.objects);
  for (const file of files) keep(file.refusedIds, before);
  return { objects, duplicates };
}

export function recordsOf(objects: Iterable<ManifestObject>): RecordMaps {
  const maps = newMaps();
  for (const { found } of objects) if (found !== undefined) put(maps, found);
  return maps;
}

type MutableRecordMaps = { readonly [K in ObjectKind]: Map<string, ObjectKinds[K]> };

function newMaps(): MutableRecordMaps {
  return { nodes: new Map(), serviceCIDRs: new Map(), services: new Map(), endpointSlices: new Map() };
}

function put<K extends ObjectKind>(maps: MutableRecordMaps, { kind, record }: KindRecord<K>): void {
  const map: Map<string, ObjectKinds[K]> = maps[kind];
  map.set(recordKey(record), record);
}

export const DELIVERY_ORDER = ["nodes", "serviceCIDRs", "services", "endpointSlices"] as const;

/** The state before the first delivery. */
export const NO_RECORDS: RecordMaps = newMaps();

/**
 * Delivers the changes kind by kind: additions and updates in folder order, then deletions. Changes to fields that the
 * records do not contain are not an update.
 *
 * @returns the records as the sink now knows them, for `before` of the next call.
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
  before: ReadonlyMap<string, ObjectKinds[K]>,
  now: ReadonlyMap<string, ObjectKinds[K]>,
  sink: ObjectSink,
): ReadonlyMap<string, ObjectKinds[K]> {
  const known = new Map(now);
  for (const [key, object] of now) {
    const old = before.get(key);
    if (old === undefined) sink.onEvent(kind, { kind: "add", object });
    else if (isOfSameDigest(old, object) || isDeepStrictEqual(old, object)) known.set(key, old);
    else sink.onEvent(kind, { kind: "update", old, object });
  }
  for (const [key, object] of before) {
    if (!now.has(key)) sink.onEvent(kind, { kind: "delete", object });
  }
  return known;
}

/** A shortcut for slices, which have a digest and hundreds of endpoints. */
function isOfSameDigest(old: object, now: object): boolean {
  return "resourceVersion" in old && "resourceVersion" in now && old.resourceVersion === now.resourceVersion;
}
