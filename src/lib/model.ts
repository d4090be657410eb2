/**
 * `kube-proxy-ts/model`: plain Kubernetes objects in; service ports, their frontends and their endpoints out, as kube-proxy
 * on one node sees them. Needs neither root nor a kernel.
 *
 * @experimental Names and shapes may change with any version before 1.0.
 *
 * @example
 * ```ts
 * import { clusterFrom, modelOf } from "kube-proxy-ts/model";
 *
 * const cluster = clusterFrom([
 *   {
 *     apiVersion: "v1",
 *     kind: "Service",
 *     metadata: { namespace: "shop", name: "web" },
 *     spec: { clusterIP: "10.96.0.10", clusterIPs: ["10.96.0.10"], ipFamilies: ["IPv4"], ports: [{ port: 80 }] },
 *   },
 * ]);
 * for (const { port, frontends } of modelOf(cluster, { family: "IPv4" }).servicePorts) {
 *   console.log(port.name.text, frontends.map(({ kind, fate }) => `${kind}: ${fate}`));
 * }
 * ```
 */
import { offlineState } from "../contract/inspect/offline-state.ts";
import { warningLogger } from "../contract/inspect/warning-logger.ts";
import type { Endpoint } from "../model/endpoint.ts";
import { type Frontend, frontendsOf } from "../model/frontend.ts";
import { conflictText, type FrontendConflict, summariesOf } from "../model/owned-services.ts";
import type { ServicePort } from "../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../model/service-port-routing.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip.ts";
import { type Cluster, invalidInput, requireCluster, requireKnown, requireObject } from "./cluster.ts";

export type { Endpoint } from "../model/endpoint.ts";
export type { Frontend, FrontendKind } from "../model/frontend.ts";
export { frontendKey } from "../model/frontend.ts";
export type {
  EndpointSliceRecord,
  NodeRecord,
  ServiceCidrRecord,
  ServiceRecord,
} from "../model/objects.ts";
export type { FrontendConflict } from "../model/owned-services.ts";
export type { ServicePort } from "../model/service-port.ts";
export type { ServicePortName } from "../model/service-port-name.ts";
export type { EndpointCategories, ServicePortRouting } from "../model/service-port-routing.ts";
export { type Cidr, type IpAddress, type IpFamily, parseCidr, parseIpAddress } from "../net/ip.ts";
export type { Protocol } from "../net/protocol.ts";
export {
  type Cluster,
  ClusterReadError,
  clusterFrom,
  formatProblem,
  type ObjectProblem,
  readCluster,
} from "./cluster.ts";
export { PlanError, type PlanErrorCode } from "./plan-error.ts";

/** From which node, and for which family, to view the cluster. */
export interface ModelOptions {
  readonly family: IpFamily;
  /** Determines which endpoints are local and, through its Node object, the zone. @default no endpoint is local */
  readonly node?: string;
  /** Feature gate AllowServiceExternalIPs. @default true */
  readonly allowExternalIPs?: boolean;
}

/** A service port with everything that its rules depend on. */
export interface ModelledPort {
  readonly port: ServicePort;
  /** All its endpoints of the family, sorted as text. */
  readonly endpoints: readonly Endpoint[];
  /** Which of them this node uses, by traffic policy, readiness and topology. */
  readonly routing: ServicePortRouting;
  /** Each destination at which clients reach it, and what happens to their packets. */
  readonly frontends: readonly Frontend[];
}

/** One family of a cluster as one node must serve it. */
export interface NodeModel {
  readonly family: IpFamily;
  /** Empty if none was named. */
  readonly node: string;
  readonly zone: string | undefined;
  /** Sorted by key. */
  readonly servicePorts: readonly ModelledPort[];
  /** Frontends that a service port declares but another one holds. */
  readonly conflicts: readonly FrontendConflict[];
  /** Oddities of the cluster, for people: conflicts, unusable values, a missing node. */
  readonly warnings: readonly string[];
}

/** Makes the model of one family. @throws PlanError `input-invalid`, and nothing else. @experimental */
export function modelOf(cluster: Cluster, options: ModelOptions): NodeModel {
  requireCluster(cluster);
  requireObject("options", options, "an object with a family");
  const { family, node = "", allowExternalIPs = true } = options;
  requireKnown("options.family", family, IP_FAMILIES);
  if (typeof node !== "string") throw invalidInput("options.node", node, "the name of a node");
  const warnings = new Set<string>();
  // As the daemon reads --hostname-override.
  const nodeName = node.trim().toLowerCase();
  const found = cluster.nodes.find(({ name }) => name === nodeName);
  if (nodeName !== "" && found === undefined) warnings.add(`no Node "${nodeName}" in the cluster: its zone is unknown`);
  const log = warningLogger((message) => warnings.add(message));
  const { state, conflicts } = offlineState(cluster, { family, nodeName, allowExternalIPs, log });
  for (const conflict of summariesOf(conflicts)) warnings.add(conflictText(conflict));
  const topology = { nodeName, zone: found?.zone };
  const servicePorts = [...state.services.keys()].sort().flatMap((key) => {
    const port = state.services.get(key);
    if (port === undefined) return [];
    const endpoints = state.endpoints.get(key) ?? [];
    const routing = routeServicePort(port, endpoints, topology);
    return [{ port, endpoints, routing, frontends: frontendsOf(port, routing) }];
  });
  return { family, node: nodeName, zone: found?.zone, servicePorts, conflicts, warnings: [...warnings] };
}
