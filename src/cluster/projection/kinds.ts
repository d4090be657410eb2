/** The kinds of objects that a proxy reads, and what each becomes. */

import { parseCidr } from "../../net/ip.ts";
import type { ObjectKind, ObjectKinds } from "../object-source.ts";
import type { ServiceCidrRecord } from "../objects.ts";
import { projectEndpointSlice } from "./endpoint-slice.ts";
import { objectField, stringListField } from "./fields.ts";
import { conclude, newFindings, type Projection, refuse } from "./findings.ts";
import { readMetadata, readName } from "./metadata.ts";
import { projectNode } from "./node.ts";
import { isEndpointSliceSelected, isServiceSelected } from "./selectors.ts";
import { projectService } from "./service.ts";

export interface KindOfObject<K extends ObjectKind = ObjectKind> {
  readonly kind: K;
  readonly apiVersion: string;
  /** Kubernetes' name: `Service`. */
  readonly title: string;
  readonly isNamespaced: boolean;
  /** Whether kube-proxy's watch would show the object (reference services.md §1). */
  isSelected(raw: unknown): boolean;
  /**
   * Pure.
   *
   * @param resourceVersion instead of the object's own, for sources whose objects carry a stale one.
   * @param keepsPods keeps the names of pods.
   * @param before what the object was, of which the new record may share parts.
   */
  project(
    raw: unknown,
    resourceVersion?: string,
    keepsPods?: boolean,
    before?: ObjectKinds[K],
  ): Projection<ObjectKinds[K]>;
}

export const SERVICE: KindOfObject<"services"> = {
  kind: "services",
  apiVersion: "v1",
  title: "Service",
  isNamespaced: true,
  isSelected: isServiceSelected,
  project: (raw) => projectService(raw),
};

export const ENDPOINT_SLICE: KindOfObject<"endpointSlices"> = {
  kind: "endpointSlices",
  apiVersion: "discovery.k8s.io/v1",
  title: "EndpointSlice",
  isNamespaced: true,
  isSelected: isEndpointSliceSelected,
  project: projectEndpointSlice,
};

export const SERVICE_CIDR: KindOfObject<"serviceCIDRs"> = {
  kind: "serviceCIDRs",
  apiVersion: "networking.k8s.io/v1",
  title: "ServiceCIDR",
  isNamespaced: false,
  isSelected: () => true,
  project: (raw) => projectServiceCidr(raw),
};

export const NODE: KindOfObject<"nodes"> = {
  kind: "nodes",
  apiVersion: "v1",
  title: "Node",
  isNamespaced: false,
  isSelected: () => true,
  project: (raw) => projectNode(raw),
};

/** Projects a ServiceCIDR; a prefix that does not parse refuses it. Pure. */
export function projectServiceCidr(raw: unknown): Projection<ServiceCidrRecord> {
  const found = newFindings();
  const object = objectField(found, raw, "");
  const metadata = readMetadata(found, object);
  const spec = objectField(found, object.spec, "spec");
  const cidrs = stringListField(found, spec.cidrs, "spec.cidrs");
  for (const [index, cidr] of cidrs.entries()) {
    if (parseCidr(cidr) === undefined) refuse(found, `spec.cidrs[${index}]`, "must be an IP prefix", cidr);
  }
  return conclude(found, Object.freeze({ name: readName(found, metadata, "subdomain"), cidrs }));
}
