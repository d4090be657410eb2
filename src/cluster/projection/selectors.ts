/**
 * The selectors that kube-proxy's watches carry (reference services.md §1), as predicates over undecoded objects. They look
 * at one field each and accept anything else, also nonsense: judging the object is the projection's task.
 */
import { isJsonObject } from "./fields.ts";
import { metadataEntry } from "./metadata.ts";

/** Another proxy serves a Service that has this label, with any value. */
export const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";
/** Slices of headless Services have this label, with any value. */
const HEADLESS_LABEL = "service.kubernetes.io/headless";
const SKIP_MIRROR_LABEL = "endpointslice.kubernetes.io/skip-mirror";
const LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader";

/** Whether the proxy's watch would show this Service: no proxy-name label, and not headless. Pure. */
export function isServiceSelected(raw: unknown): boolean {
  if (metadataEntry(raw, "labels", PROXY_NAME_LABEL) !== undefined) return false;
  return !isHeadlessService(raw);
}

/** Whether `spec.clusterIP` is `None`, or would be defaulted to it from `spec.clusterIPs`. Pure. */
export function isHeadlessService(raw: unknown): boolean {
  if (!isJsonObject(raw) || !isJsonObject(raw.spec)) return false;
  const { clusterIP, clusterIPs } = raw.spec;
  if (clusterIP === undefined || clusterIP === null || clusterIP === "") {
    return Array.isArray(clusterIPs) && clusterIPs[0] === "None";
  }
  return clusterIP === "None";
}

/** Whether the proxy's watch would show this EndpointSlice: no headless label. Pure. */
export function isEndpointSliceSelected(raw: unknown): boolean {
  return metadataEntry(raw, "labels", HEADLESS_LABEL) === undefined;
}

/**
 * Whether slices would be mirrored from this Endpoints object and then be watched: not marked `skip-mirror: "true"`,
 * not a leader-election lock, and (labels are mirrored too) no headless label. Pure.
 */
export function isEndpointsSelected(raw: unknown): boolean {
  if (metadataEntry(raw, "labels", SKIP_MIRROR_LABEL) === "true") return false;
  if (metadataEntry(raw, "annotations", LEADER_ANNOTATION) !== undefined) return false;
  return isEndpointSliceSelected(raw);
}
