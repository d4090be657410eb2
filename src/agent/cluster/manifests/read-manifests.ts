/** Reads manifests once, for commands that do not watch. */
import { silentLogger } from "../../../logging/logger.ts";
import type { ManifestProblem } from "../../../model/manifest-problem.ts";
import type { ClusterRecords } from "../../../model/objects.ts";
import { ManifestFolder } from "./manifest-folder.ts";
import { type ManifestObject, parseDecoded } from "./manifest-objects.ts";
import { ManifestReader } from "./manifest-reader.ts";
import { recordsOf } from "./merge.ts";

interface ReadChoice {
  /** Keeps Pods, pod names in slices, and notes on Services. @default false */
  readonly keepsPods?: boolean;
}

/** Reads a folder, or a single file of any name. Rejects if it cannot be read at all. */
export async function readManifests(path: string, { keepsPods = false }: ReadChoice = {}): Promise<ClusterRecords> {
  const folder = new ManifestFolder(path, silentLogger, new ManifestReader({ keepsPods }));
  await folder.load();
  return clusterRecords(folder.objects(), folder.problems());
}

/** Reads a text as a file of that name. Never rejects. */
export async function readManifestText(
  text: string,
  file: string,
  { keepsPods = false }: ReadChoice = {},
): Promise<ClusterRecords> {
  const { objects, problems } = await new ManifestReader({ keepsPods }).parse(text, file);
  return clusterRecords([...objects.values()], problems);
}

/**
 * Projects decoded objects, including lists, as if they were the documents of one file (`file` in problems). The first
 * of two definitions of an object wins.
 */
export function projectObjects(
  raw: readonly unknown[],
  file = "objects",
  { keepsPods = false }: ReadChoice = {},
): ClusterRecords {
  const { objects, problems } = parseDecoded(raw, file, keepsPods);
  return clusterRecords([...objects.values()], problems);
}

function clusterRecords(objects: readonly ManifestObject[], problems: readonly ManifestProblem[]): ClusterRecords {
  const maps = recordsOf(objects);
  const pods = objects.flatMap(({ pod }) => pod ?? []);
  const serviceNotes = objects.flatMap(({ notes }) => notes ?? []);
  return {
    services: [...maps.services.values()],
    endpointSlices: [...maps.endpointSlices.values()],
    nodes: [...maps.nodes.values()],
    serviceCIDRs: [...maps.serviceCIDRs.values()],
    problems,
    ...(pods.length > 0 && { pods }),
    ...(serviceNotes.length > 0 && { serviceNotes }),
  };
}
