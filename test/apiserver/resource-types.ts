/** The resources of the test API server, and the permissions of `system:node-proxier`. */

export interface ResourceType {
  /** The plural name in URLs. */
  readonly plural: string;
  readonly kind: string;
  readonly apiVersion: string;
  readonly isNamespaced: boolean;
  /** Whether the test server can write it in protobuf. */
  readonly hasProtobuf?: boolean;
  /** Verbs of the ClusterRole `system:node-proxier` (reference operation.md §8.3). */
  readonly proxierVerbs: readonly string[];
}

export const RESOURCE_TYPES = {
  services: {
    plural: "services",
    hasProtobuf: true,
    kind: "Service",
    apiVersion: "v1",
    isNamespaced: true,
    proxierVerbs: ["list", "watch"],
  },
  nodes: {
    plural: "nodes",
    hasProtobuf: true,
    kind: "Node",
    apiVersion: "v1",
    isNamespaced: false,
    proxierVerbs: ["get", "list", "watch"],
  },
  endpointslices: {
    plural: "endpointslices",
    hasProtobuf: true,
    kind: "EndpointSlice",
    apiVersion: "discovery.k8s.io/v1",
    isNamespaced: true,
    proxierVerbs: ["list", "watch"],
  },
  configmaps: {
    plural: "configmaps",
    kind: "ConfigMap",
    apiVersion: "v1",
    isNamespaced: true,
    proxierVerbs: [],
  },
  servicecidrs: {
    plural: "servicecidrs",
    hasProtobuf: true,
    kind: "ServiceCIDR",
    apiVersion: "networking.k8s.io/v1",
    isNamespaced: false,
    proxierVerbs: ["list", "watch"],
  },
  pods: {
    plural: "pods",
    kind: "Pod",
    apiVersion: "v1",
    isNamespaced: true,
    proxierVerbs: [],
  },
  events: {
    plural: "events",
    kind: "Event",
    apiVersion: "events.k8s.io/v1",
    isNamespaced: true,
    proxierVerbs: ["create", "patch", "update"],
  },
} as const satisfies Readonly<Record<string, ResourceType>>;

export type Plural = keyof typeof RESOURCE_TYPES;

/** A parsed URL path. */
export interface ResourcePath {
  readonly type: ResourceType & { readonly plural: Plural };
  readonly namespace: string | undefined;
  readonly name: string | undefined;
}

/** Parses a URL path; `undefined` if it is not served. */
export function parseResourcePath(pathname: string): ResourcePath | undefined {
  for (const type of Object.values(RESOURCE_TYPES)) {
    const root = type.apiVersion.includes("/") ? `/apis/${type.apiVersion}` : `/api/${type.apiVersion}`;
    if (!pathname.startsWith(`${root}/`)) continue;
    const parts = pathname.slice(root.length + 1).split("/");
    const namespace = parts[0] === "namespaces" ? parts[1] : undefined;
    const [plural, name, ...rest] = namespace === undefined ? parts : parts.slice(2);
    if (plural === type.plural && rest.length === 0) return { type, namespace, name };
  }
  return undefined;
}
