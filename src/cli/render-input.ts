/** What `render` reads: folders and files of manifests, pipes, standard input. */
import { stat } from "node:fs/promises";
import { formatManifestProblem, type ManifestProblem } from "../cluster/manifests/problem.ts";
import { type ClusterRecords, readManifests, readManifestText } from "../cluster/manifests/read-manifests.ts";
import { readInputText } from "./bounded-input.ts";
import { UsageError } from "./exit.ts";

const STANDARD_INPUT = "-";

/**
 * Reads everything. Problems are told one by one; what is good of the rest is used.
 *
 * @throws UsageError when something cannot be read, or nothing of it can be used.
 */
export async function readInput(
  paths: readonly string[],
  input: NodeJS.ReadableStream,
  tell: (line: string) => void,
): Promise<ClusterRecords> {
  if (paths.filter((path) => path === STANDARD_INPUT).length > 1) {
    throw new UsageError("-f - was given more than once: standard input can be read once");
  }
  const parts = await Promise.all(paths.map((path) => readOne(path, input)));
  const cluster: ClusterRecords = {
    services: parts.flatMap(({ services }) => services),
    endpointSlices: parts.flatMap(({ endpointSlices }) => endpointSlices),
    nodes: parts.flatMap(({ nodes }) => nodes),
    serviceCIDRs: parts.flatMap(({ serviceCIDRs }) => serviceCIDRs),
    problems: parts.flatMap(({ problems }) => problems),
    pods: parts.flatMap(({ pods = [] }) => pods),
    serviceNotes: parts.flatMap(({ serviceNotes = [] }) => serviceNotes),
  };
  for (const problem of cluster.problems) tell(lineOf(problem));
  const { services, endpointSlices, nodes, serviceNotes = [] } = cluster;
  if (services.length + endpointSlices.length + nodes.length + serviceNotes.length === 0) {
    const where = paths.map((path) => (path === STANDARD_INPUT ? "standard input" : path)).join(", ");
    throw new UsageError(`nothing to render: no Service, EndpointSlice or Node in ${where} can be used`);
  }
  return cluster;
}

function lineOf(problem: ManifestProblem): string {
  return `${problem.severity}: ${formatManifestProblem(problem)}`;
}

async function readOne(path: string, input: NodeJS.ReadableStream): Promise<ClusterRecords> {
  try {
    if (path === STANDARD_INPUT)
      return await readManifestText(await readInputText(path, input), "standard input", { keepsPods: true });
    const found = await stat(path);
    // A pipe, as the shell makes one of `<(kubectl get …)`.
    if (!found.isFile() && !found.isDirectory()) {
      return await readManifestText(await readInputText(path, input), path, { keepsPods: true });
    }
    return await readManifests(path, { keepsPods: true });
  } catch (error) {
    throw new UsageError(`cannot read the manifests in ${path}: ${error instanceof Error ? error.message : error}`);
  }
}
