/** From Kubernetes objects to the records behind models and plans. Problems with objects are data, not errors. */

import { projectObjects, readManifests } from "../agent/cluster/manifests/read-manifests.ts";
import { formatManifestProblem, type ManifestProblem } from "../model/manifest-problem.ts";
import type { ClusterRecords } from "../model/objects.ts";
import { PlanError } from "./plan-error.ts";

/**
 * What a node's service proxy needs to know of a cluster. `problems` names every object that could not be used (`error`) and
 * every part left out of a usable one (`warning`); the rest is in the other lists.
 */
export type Cluster = ClusterRecords;

/** One problem with one object: the object, the field, and a complete sentence. */
export type ObjectProblem = ManifestProblem;

/** A file or folder could not be read at all. */
export class ClusterReadError extends Error {
  override readonly name = "ClusterReadError";
  readonly code = "cluster-unreadable";
  readonly path: string;
  constructor(path: string, reason: string, options?: ErrorOptions) {
    super(`cannot read the manifests in ${path}: ${reason}`, options);
    this.path = path;
  }
}

/**
 * Takes Services, EndpointSlices (or old Endpoints), Nodes and ServiceCIDRs as plain objects from an API server or a YAML
 * parser, including Kubernetes lists of them. Ignores objects of other kinds. Never throws because of an object: unusable
 * ones are in `problems`, where `document` is the position in the list, counted from 1.
 *
 * @throws PlanError `input-invalid` if `objects` is not a list
 */
export function clusterFrom(objects: readonly unknown[]): Cluster {
  if (!Array.isArray(objects)) throw invalidInput("objects", objects, "a list of objects");
  try {
    return projectObjects(objects);
  } catch {
    // An object has no JSON form, for example because it contains itself. Find it, and use the others.
    const unusable = objects.map((object) => reasonAgainst(object));
    const usable = objects.filter((_object, index) => unusable[index] === undefined);
    const positions = objects.flatMap((_object, index) => (unusable[index] === undefined ? [index + 1] : []));
    const cluster = projectObjects(usable);
    const others = cluster.problems.map((problem) => ({
      ...problem,
      document: positions[problem.document - 1] ?? problem.document,
    }));
    const own = unusable.flatMap((reason, index) => (reason === undefined ? [] : [notPlain(index + 1, reason)]));
    return { ...cluster, problems: [...own, ...others].sort((a, b) => a.document - b.document) };
  }
}

/** Reads manifests, YAML or JSON: a folder, or a single file. @throws ClusterReadError when it cannot be read at all. */
export async function readCluster(path: string): Promise<Cluster> {
  try {
    return await readManifests(path);
  } catch (error) {
    throw new ClusterReadError(path, messageOf(error), { cause: error });
  }
}

/** A problem as one line: `objects: document 2: Service shop/web: spec.ports[0].port must be …`. */
export function formatProblem(problem: ObjectProblem): string {
  return formatManifestProblem(problem);
}

function reasonAgainst(object: unknown): string | undefined {
  try {
    projectObjects([object]);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

function notPlain(document: number, reason: string): ObjectProblem {
  const [firstLine = ""] = reason.split("\n");
  const message = `must be plain data that JSON can hold: ${firstLine}`;
  return { severity: "error", file: "objects", document, line: 0, object: "", field: "", message };
}

const LISTS = ["services", "endpointSlices", "nodes", "serviceCIDRs"] as const satisfies readonly (keyof Cluster)[];

/** @throws PlanError `input-invalid` for a value that neither {@link clusterFrom} nor {@link readCluster} returned. */
export function requireCluster(cluster: Cluster): void {
  requireObject("cluster", cluster, "what clusterFrom() or readCluster() gives");
  for (const name of LISTS) {
    if (!Array.isArray(cluster[name]))
      throw invalidInput(`cluster.${name}`, cluster[name], "a list, as clusterFrom() and readCluster() make it");
  }
}

/** @param wanted what the value must be, in words. @throws PlanError `input-invalid` if it is not an object. */
export function requireObject(name: string, value: unknown, wanted: string): void {
  if (typeof value !== "object" || value === null) throw invalidInput(name, value, wanted);
}

/** @throws PlanError `input-invalid` unless `list` is a list of known values. */
export function requireListOf(name: string, list: readonly unknown[], known: readonly unknown[]): void {
  if (!Array.isArray(list)) throw invalidInput(name, list, "a list");
  for (const [index, one] of list.entries()) requireKnown(`${name}[${index}]`, one, known);
}

/** @throws PlanError `input-invalid` for an unknown value. */
export function requireKnown(name: string, value: unknown, known: readonly unknown[]): void {
  if (!known.includes(value)) throw invalidInput(name, value, known.map((one) => `"${one}"`).join(" or "));
}

/** The error about an argument. @param wanted what it must be, in words. */
export function invalidInput(name: string, value: unknown, wanted: string): PlanError {
  const got =
    typeof value === "string" ? JSON.stringify(value) : Array.isArray(value) ? "a list" : String(typeof value);
  return new PlanError("input-invalid", `${name} must be ${wanted}, got ${value === null ? "null" : got}`);
}

/** A thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
