/**
 * The selectors of kube-proxy's watches (reference services.md §1), as predicates over raw objects. Each checks its own
 * field and accepts invalid objects: the projection validates them.
 */
import { isJsonObject } from "./fields.ts";
import { metadataEntry } from "./metadata.ts";

/** Another proxy serves a Service with this label, with any value. */
export const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";
/** Marks slices of headless Services, with any value. */
const HEADLESS_LABEL = "service.kubernetes.io/headless";

/** Whether the proxy's watch includes this Service: no proxy-name label, and not headless. */
export function isServiceSelected(raw: unknown): boolean {
  if (metadataEntry(raw, "labels", PROXY_NAME_LABEL) !== undefined) return false;
  return !isHeadlessService(raw);
}

/** Whether `spec.clusterIP` is `None`, or would default to it from `spec.clusterIPs`. */
export function isHeadlessService(raw: unknown): boolean {
  if (!isJsonObject(raw) || !isJsonObject(raw.spec)) return false;
  const { clusterIP, clusterIPs } = raw.spec;
  if (clusterIP === undefined || clusterIP === null || clusterIP === "") {
    return Array.isArray(clusterIPs) && clusterIPs[0] === "None";
  }
  return clusterIP === "None";
}

/** Whether the proxy's watch includes this EndpointSlice: no headless label. */
export function isEndpointSliceSelected(raw: unknown): boolean {
  return metadataEntry(raw, "labels", HEADLESS_LABEL) === undefined;
}
