/** Kubernetes objects as decoded JSON → the program's records. */
export { projectEndpointSlice } from "./endpoint-slice.ts";
export { describeValue, type FieldProblem, formatProblem, type Projection } from "./findings.ts";
export { projectEndpoints } from "./mirrored-slices.ts";
export { projectNode } from "./node.ts";
export {
  isEndpointSliceSelected,
  isEndpointsSelected,
  isHeadlessService,
  isServiceSelected,
} from "./selectors.ts";
export { projectService } from "./service.ts";
export { projectServiceCidr } from "./service-cidr.ts";
