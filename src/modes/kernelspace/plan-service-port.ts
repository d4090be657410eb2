/**
 * Plans one service port: HNS load balancers, and the endpoints that they name. Endpoints are named by address, because
 * only HNS knows their IDs. Reference windows.md §2.6, §3.5.
 */

import { isWeighted } from "../../model/cells.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { type Frontend, type FrontendKind, frontendKey, frontendsOf, onePerDestination } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { cidrContains, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, type Protocol } from "../../net/protocol.ts";
import {
  DISTRIBUTE_BY_SOURCE,
  LB_DSR,
  LB_IPV6,
  MAP_EXTERNAL_IP,
  MAP_LOCAL_ROUTED_VIP,
  MAP_PRESERVE_DIP,
  MAP_USE_MUX,
  type PortMapping,
  type RemoteSubnet,
} from "./hcn/documents.ts";

/** Constant while the process runs. */
export interface PlanConfig {
  readonly family: IpFamily;
  readonly nodeName: string;
  readonly nodeIP: IpAddress;
  /** `winkernel.enableDSR`: cluster IPs answer clients directly. */
  readonly enableDsr: boolean;
  /** HNS supports direct server return, which the external Local policy and preserve-destination need. */
  readonly hasDsr: boolean;
  /** HNS supports session affinity. */
  readonly hasAffinity: boolean;
  /** `winkernel.sourceVip`. */
  readonly sourceVip: IpAddress | undefined;
  /** `winkernel.forwardHealthCheckVip`: the port of the proxy's own health server, 0 for none. Undefined: not forwarded. */
  readonly healthPort: number | undefined;
}

/** As the last read of the host found it. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly isOverlay: boolean;
  readonly remoteSubnets: readonly RemoteSubnet[];
}

export type LoadBalancerKind = FrontendKind | "health-check";

/** A load balancer before the IDs of its endpoints are known. */
export interface PlannedLoadBalancer {
  readonly key: string;
  readonly kind: LoadBalancerKind;
  /** Undefined: the node's own address. */
  readonly frontendVip: IpAddress | undefined;
  readonly mapping: PortMapping;
  readonly sourceVip: IpAddress | undefined;
  readonly flags: number;
  /** Without duplicates, in the model's order; `root`: the endpoint of the node itself. Never empty. */
  readonly endpoints: readonly IpAddress[] | "root";
}

export interface ServicePortPlan {
  readonly loadBalancers: readonly PlannedLoadBalancer[];
  /** The addresses that load balancers name, and whether they are pods of this node. */
  readonly endpoints: ReadonlyMap<IpAddress, boolean>;
  /** On an overlay, the cluster IP has an endpoint, too. */
  readonly vip: IpAddress | undefined;
  /** Features that the service port asks for and HNS lacks. */
  readonly warnings: readonly string[];
}

/** Mapping flags by kind, without and with preserve-destination. */
const MAPPING_FLAGS: Readonly<Record<LoadBalancerKind, readonly [plain: number, preserving: number]>> = {
  "cluster-ip": [0, 0],
  "node-port": [MAP_EXTERNAL_IP | MAP_LOCAL_ROUTED_VIP, MAP_EXTERNAL_IP | MAP_LOCAL_ROUTED_VIP],
  "external-ip": [MAP_EXTERNAL_IP, MAP_EXTERNAL_IP],
  "load-balancer": [MAP_EXTERNAL_IP, MAP_EXTERNAL_IP | MAP_USE_MUX | MAP_PRESERVE_DIP],
  "health-check": [0, MAP_USE_MUX | MAP_PRESERVE_DIP],
};

/** @param endpoints all of the port, sorted by text. */
export function planServicePort(
  declared: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
): ServicePortPlan {
  // The Local policy needs direct server return, which not every HNS supports (kubernetes #62046).
  const port = config.hasDsr ? declared : { ...declared, externalPolicyLocal: false };
  const routing = routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone });
  const preserves = port.preservesDestination === true && config.hasDsr;
  const sourceVip = sourceVipOf(routing.categories.reachable, config, facts);
  const loadBalancers: PlannedLoadBalancer[] = [];
  const used = new Map<IpAddress, boolean>();
  let isMixed = false;

  for (const frontend of onePerDestination(port, frontendsOf(port, routing))) {
    if (frontend.fate !== "serve") continue;
    const isDirect = answersDirectly(frontend, port, preserves, config);
    const all = frontend.policy === "Local" ? routing.local : routing.cluster;
    const chosen = preserves && isPreserving(frontend) ? all.filter(({ isLocal }) => isLocal) : all;
    const served = onePort(chosen);
    isMixed ||= served.isMixed;
    if (served.port === 0) continue;
    for (const { ip, isLocal } of served.endpoints) used.set(ip, isLocal || used.get(ip) === true);
    loadBalancers.push({
      key: frontendKey(port.protocol, frontend),
      kind: frontend.kind,
      frontendVip: frontend.address,
      mapping: {
        protocol: PROTOCOL_NUMBERS[port.protocol],
        internalPort: served.port,
        externalPort: frontend.port,
        distribution: port.sessionAffinity === "ClientIP" && config.hasAffinity ? DISTRIBUTE_BY_SOURCE : 0,
        flags: MAPPING_FLAGS[frontend.kind][preserves ? 1 : 0],
      },
      sourceVip,
      flags: (isDirect ? LB_DSR : 0) | familyFlag(config),
      endpoints: [...new Set(served.endpoints.map(({ ip }) => ip))],
    });
    const healthCheck = healthCheckOf(frontend, port, preserves, config);
    if (healthCheck !== undefined) loadBalancers.push(healthCheck);
  }
  const warnings: readonly (readonly [isTrue: boolean, warning: string])[] = [
    [
      isMixed,
      "The endpoints of a service port have several target ports, of which HNS knows one: the most frequent is served, and the others are left out",
    ],
    [
      port.loadBalancerSourceRanges.length > 0,
      "loadBalancerSourceRanges has no effect on Windows: HNS cannot tell clients apart",
    ],
    [
      isWeighted(routing.categories.reachable),
      "The weights of EndpointSlices have no effect on Windows, apart from 0: HNS has none, and all endpoints get as much",
    ],
    [
      declared.externalPolicyLocal && !config.hasDsr,
      "externalTrafficPolicy Local counts as Cluster: this version of HNS has no direct server return",
    ],
    [
      port.sessionAffinity === "ClientIP" && !config.hasAffinity,
      "sessionAffinity has no effect: this version of HNS does not have it",
    ],
  ];
  return {
    loadBalancers,
    endpoints: used,
    vip: facts.isOverlay ? port.clusterIP : undefined,
    warnings: warnings.flatMap(([isTrue, warning]) => (isTrue ? [warning] : [])),
  };
}

/** Node ports and load-balancer addresses preserve the destination, external IPs do not (windows.md §2.6). */
function isPreserving({ kind }: Frontend): boolean {
  return kind === "node-port" || kind === "load-balancer";
}

/** Direct server return ends forwarding to other nodes: external traffic gets it with local endpoints only (kubernetes #103138). */
function answersDirectly(
  { kind }: Frontend,
  port: ServicePort,
  preserves: boolean,
  { enableDsr }: PlanConfig,
): boolean {
  if (kind === "cluster-ip") return enableDsr;
  return port.externalPolicyLocal || (preserves && kind === "load-balancer");
}

const familyFlag = ({ family }: PlanConfig): number => (family === "IPv6" ? LB_IPV6 : 0);

/**
 * A load balancer has one target port: the most frequent of its endpoints, or the lowest among equals. Endpoints with
 * another one are left out, since they would get traffic at the wrong port (kubernetes #132646).
 */
function onePort(endpoints: readonly Endpoint[]) {
  const counts = new Map<number, number>();
  for (const { port } of endpoints) counts.set(port, (counts.get(port) ?? 0) + 1);
  const [first] = [...counts].sort(([a, n], [b, m]) => m - n || a - b);
  const port = first?.[0] ?? 0;
  return {
    port,
    isMixed: counts.size > 1,
    endpoints: counts.size > 1 ? endpoints.filter((endpoint) => endpoint.port === port) : endpoints,
  };
}

/** Addresses outside all subnets of the overlay are reached from the node's own address, as nodes are. */
function sourceVipOf(
  reachable: readonly Endpoint[],
  { sourceVip, nodeIP }: PlanConfig,
  facts: PlanFacts,
): IpAddress | undefined {
  if (!facts.isOverlay) return undefined;
  const isOutside = reachable.some(({ ip, isLocal }) => {
    if (isLocal) return false;
    const provider = providerOf(ip, facts);
    return provider === undefined || provider === ip;
  });
  return isOutside ? nodeIP : sourceVip;
}

/** The node that carries an address on the overlay, by the last subnet that contains it; undefined if none does. */
export function providerOf(address: IpAddress, { remoteSubnets }: Pick<PlanFacts, "remoteSubnets">) {
  return remoteSubnets.findLast(
    ({ prefix, providerAddress }) => providerAddress === address || cidrContains(prefix, address),
  )?.providerAddress;
}

const HEALTH_PROTOCOL: Protocol = "TCP";

/** Health servers use TCP, even for Services of other protocols (windows-practice.md §9.6). */
function healthCheckOf(
  { kind, address }: Frontend,
  { healthCheckNodePort }: ServicePort,
  preserves: boolean,
  config: PlanConfig,
): PlannedLoadBalancer | undefined {
  if (kind !== "load-balancer" || config.healthPort === undefined) return undefined;
  const port = healthCheckNodePort === 0 ? config.healthPort : healthCheckNodePort;
  if (port === 0) return undefined;
  return {
    key: frontendKey(HEALTH_PROTOCOL, { address, port }),
    kind: "health-check",
    frontendVip: address,
    mapping: {
      protocol: PROTOCOL_NUMBERS[HEALTH_PROTOCOL],
      internalPort: port,
      externalPort: port,
      distribution: 0,
      flags: MAPPING_FLAGS["health-check"][preserves ? 1 : 0],
    },
    sourceVip: config.sourceVip,
    flags: familyFlag(config),
    endpoints: "root",
  };
}
