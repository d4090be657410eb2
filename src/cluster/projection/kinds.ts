/** The kinds of objects that a proxy reads, and what each becomes. */
import type { ObjectKind, ObjectKinds } from "../object-source.ts";
import { projectEndpointSlice } from "./endpoint-slice.ts";
import type { Projection } from "./findings.ts";
import { projectNode } from "./node.ts";
import { isEndpointSliceSelected, isServiceSelected } from "./selectors.ts";
import { projectService } from "./service.ts";
import { projectServiceCidr } from "./service-cidr.ts";

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
