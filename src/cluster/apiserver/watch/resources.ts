/** The resources that are watched, and how (reference operation.md §8.2). */
import type { ObjectKind } from "../../object-source.ts";
import { ENDPOINT_SLICE, type KindOfObject, NODE, SERVICE, SERVICE_CIDR } from "../../projection/kinds.ts";

export interface WatchedResource<K extends ObjectKind = ObjectKind> extends KindOfObject<K> {
  /** Plural name, for messages: `services`. */
  readonly plural: string;
  /** Name of upstream's controller in log lines. */
  readonly controller: string;
  readonly path: string;
  /** Query parameters for what {@link KindOfObject.isSelected} asks once more: not every server knows them all. */
  readonly selectors: Readonly<Record<string, string>>;
  /** Keeps the names of pods, which only people ask for. @default false */
  readonly keepsPods?: boolean;
}

/** The Node objects of one name: one, or none. */
export function nodeResource(nodeName: string): WatchedResource<"nodes"> {
  const selectors = { fieldSelector: `metadata.name=${nodeName}` };
  return { ...NODE, plural: "nodes", controller: "node config", path: "/api/v1/nodes", selectors };
}

/** Everything but the Node, in the order in which upstream starts them. */
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
