/** Ordinary Kubernetes manifests as the cluster. */
export { createManifestsSource, type ManifestsSource, type ManifestsSourceOptions } from "./manifests-source.ts";
export { formatManifestProblem, type ManifestProblem } from "./problem.ts";
export {
  type ClusterRecords,
  projectObjects,
  type ReadChoice,
  readManifests,
  readManifestText,
} from "./read-manifests.ts";
