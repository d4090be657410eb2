/** All files of a folder → the objects in force and the records that follow from them. */

import { isDeepStrictEqual } from "../../kernel/node-util.ts";
import type { ObjectKind, ObjectSink } from "../object-source.ts";
import type { ObjectEntry } from "../projection/object-entry.ts";
import type { FileState } from "./file-state.ts";
import { duplicateProblem, type ManifestObject } from "./manifest-objects.ts";
import type { ManifestProblem } from "./problem.ts";

export type RecordMaps = { readonly [K in ObjectKind]: ReadonlyMap<string, ObjectEntry<K>> };

interface MergedFolder {
  readonly objects: ReadonlyMap<string, ManifestObject>;
  /** Objects that several files define. */
  readonly duplicates: readonly ManifestProblem[];
}

/**
 * Takes each object from the first file, in path order, that defines it. An object that only bad definitions remain of
 * (it moved to another file and broke there) stays in force as it was. Pure.
 *
 * @param files in path order.
 */
export function mergeFiles(files: readonly FileState[], before: ReadonlyMap<string, ManifestObject>): MergedFolder {
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
  // What a file held before, where no file holds it now.
  for (const file of files) {
    for (const id of file.leftIds) {
      const left = file.objects.get(id);
      if (left !== undefined && !objects.has(id)) objects.set(id, left);
    }
  }
  for (const file of files) {
    for (const id of file.refusedIds) {
      const old = before.get(id);
      if (old !== undefined && !objects.has(id)) objects.set(id, old);
    }
  }
  return { objects, duplicates };
}

/**
 * The records of the objects. Slices made of an Endpoints object count only while no EndpointSlice of the same Service
 * is there: a dump of a cluster holds both, and the slices say more. Pure.
 */
export function recordsOf(objects: Iterable<ManifestObject>): RecordMaps {
  const maps = newMaps();
  const mirrored: ObjectEntry<"endpointSlices">[] = [];
  const servicesWithSlices = new Set<string>();
  for (const object of objects) {
    for (const entry of object.entries) {
      if (entry.kind !== "endpointSlices") put(maps, entry);
      else if (object.isMirrored) mirrored.push(entry);
      else {
        put(maps, entry);
        servicesWithSlices.add(serviceOf(entry));
      }
    }
  }
  for (const entry of mirrored) {
    if (!servicesWithSlices.has(serviceOf(entry)) && !maps.endpointSlices.has(entry.key)) put(maps, entry);
  }
  return maps;
}

type MutableRecordMaps = { readonly [K in ObjectKind]: Map<string, ObjectEntry<K>> };

function newMaps(): MutableRecordMaps {
  return { nodes: new Map(), serviceCIDRs: new Map(), services: new Map(), endpointSlices: new Map() };
}

function put<K extends ObjectKind>(maps: MutableRecordMaps, entry: ObjectEntry<K>): void {
  const map: Map<string, ObjectEntry<K>> = maps[entry.kind];
  map.set(entry.key, entry);
}

function serviceOf(entry: ObjectEntry<"endpointSlices">): string {
  return `${entry.record.namespace}/${entry.record.serviceName}`;
}

/** Kinds in the order of delivery. */
export const DELIVERY_ORDER = ["nodes", "serviceCIDRs", "services", "endpointSlices"] as const;

/** Before anything was delivered. */
export const NO_RECORDS: RecordMaps = newMaps();

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
