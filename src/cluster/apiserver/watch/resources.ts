/** The resources that are watched, and how (reference operation.md §8.2). */
import type { ObjectKind, ObjectKinds } from "../../object-source.ts";
import type { Projection } from "../../projection/findings.ts";
import {
  isEndpointSliceSelected,
  isServiceSelected,
  projectEndpointSlice,
  projectNode,
  projectService,
  projectServiceCidr,
} from "../../projection/index.ts";

export interface WatchedResource<K extends ObjectKind = ObjectKind> {
  readonly kind: K;
  /** Plural name, for messages: `services`. */
  readonly plural: string;
  /** Kind of its objects: `Service`. */
  readonly title: string;
  /** Name of upstream's controller in log lines. */
  readonly controller: string;
  readonly path: string;
  /** Query parameters that select what kube-proxy is to see. */
  readonly selectors: Readonly<Record<string, string>>;
  readonly isNamespaced: boolean;
  /** The selectors once more, for servers that do not know them all. */
  isSelected(raw: unknown): boolean;
  /** @param before what the object was, of which the new record may share parts. */
  project(raw: unknown, before?: ObjectKinds[K]): Projection<ObjectKinds[K]>;
}

const services: WatchedResource<"services"> = {
  kind: "services",
  plural: "services",
  title: "Service",
  controller: "service config",
  path: "/api/v1/services",
  selectors: { labelSelector: "!service.kubernetes.io/service-proxy-name", fieldSelector: "spec.clusterIP!=None" },
  isNamespaced: true,
  isSelected: isServiceSelected,
  project: (raw) => projectService(raw),
};

const endpointSlices: WatchedResource<"endpointSlices"> = {
  kind: "endpointSlices",
  plural: "endpointslices",
  title: "EndpointSlice",
  controller: "endpoint slice config",
  path: "/apis/discovery.k8s.io/v1/endpointslices",
  selectors: { labelSelector: "!service.kubernetes.io/headless" },
  isNamespaced: true,
  isSelected: isEndpointSliceSelected,
  project: (raw, before) => projectEndpointSlice(raw, undefined, false, before),
};

const serviceCIDRs: WatchedResource<"serviceCIDRs"> = {
  kind: "serviceCIDRs",
  plural: "servicecidrs",
  title: "ServiceCIDR",
  controller: "serviceCIDR config",
  path: "/apis/networking.k8s.io/v1/servicecidrs",
  selectors: {},
  isNamespaced: false,
  isSelected: () => true,
  project: (raw) => projectServiceCidr(raw),
};

/** The Node objects of one name: one, or none. */
export function nodeResource(nodeName: string): WatchedResource<"nodes"> {
  return {
    kind: "nodes",
    plural: "nodes",
    title: "Node",
    controller: "node config",
    path: "/api/v1/nodes",
    selectors: { fieldSelector: `metadata.name=${nodeName}` },
    isNamespaced: false,
    isSelected: () => true,
    project: (raw) => projectNode(raw),
  };
}

/** Everything but the Node, in the order in which upstream starts them. */
export const CLUSTER_RESOURCES = [services, endpointSlices, serviceCIDRs] as const;

/** Plural names of everything that is watched. */
export const WATCHED_PLURALS: readonly string[] = ["nodes", ...CLUSTER_RESOURCES.map(({ plural }) => plural)];
