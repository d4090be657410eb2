/** The watched resources (reference operation.md §8.2). */
import type { ObjectKind } from "../../../../model/object-source.ts";
import { ENDPOINT_SLICE, type KindOfObject, NODE, SERVICE, SERVICE_CIDR } from "../../../../model/projection/kinds.ts";

export interface WatchedResource<K extends ObjectKind = ObjectKind> extends KindOfObject<K> {
  /** Plural name, for messages: `services`. */
  readonly plural: string;
  /** The name of upstream's controller in log lines. */
  readonly controller: string;
  readonly path: string;
  /** Query parameters; {@link KindOfObject.isSelected} checks again, because not every server supports all of them. */
  readonly selectors: Readonly<Record<string, string>>;
  /** Keeps pod names, which only commands need. @default false */
  readonly keepsPods?: boolean;
}

/** The Node of this name. */
export function nodeResource(nodeName: string): WatchedResource<"nodes"> {
  const selectors = { fieldSelector: `metadata.name=${nodeName}` };
  return { ...NODE, plural: "nodes", controller: "node config", path: "/api/v1/nodes", selectors };
}

/** All resources but the Node, in upstream's start order. */
export const CLUSTER_RESOURCES: readonly [
  WatchedResource<"services">,
  WatchedResource<"endpointSlices">,
  WatchedResource<"serviceCIDRs">,
] = [
  {
    ...SERVICE,
    plural: "services",
    controller: "service config",
    path: "/api/v1/services",
    selectors: { labelSelector: "!service.kubernetes.io/service-proxy-name", fieldSelector: "spec.clusterIP!=None" },
  },
  {
    ...ENDPOINT_SLICE,
    plural: "endpointslices",
    controller: "endpoint slice config",
    path: "/apis/discovery.k8s.io/v1/endpointslices",
    selectors: { labelSelector: "!service.kubernetes.io/headless" },
  },
  {
    ...SERVICE_CIDR,
    plural: "servicecidrs",
    controller: "serviceCIDR config",
    path: "/apis/networking.k8s.io/v1/servicecidrs",
    selectors: {},
  },
];

export const WATCHED_PLURALS: readonly string[] = ["nodes", ...CLUSTER_RESOURCES.map(({ plural }) => plural)];
