/** Services as their objects state them: addresses, and which endpoints are to answer. For the specification, and by its rules. Pure. */
import type { EndpointRecord, EndpointSliceRecord, ServicePortSpec, ServiceRecord } from "../cluster/objects.ts";
import type { LocalTrafficDetector } from "../model/local-traffic-detector.ts";
import {
  familyOf,
  hostCidr,
  type IpAddress,
  type IpFamily,
  joinHostPort,
  parseCidr,
  parseIpAddress,
  unspecifiedAddress,
  zeroCidr,
} from "../net/ip.ts";
import { prefixPatterns } from "../trace/facts.ts";
import type { Question } from "../trace/question.ts";
import type { Pattern } from "../trace/value.ts";

/** The objects, and what is known of the node. */
export interface SpecifiedNode {
  readonly family: IpFamily;
  readonly name: string;
  readonly zone: string | undefined;
  /** Its addresses, loopback among them. */
  readonly addresses: readonly IpAddress[];
  readonly nodeIP: IpAddress;
  /** Those that answer for node ports; undefined: all but loopback. */
  readonly nodePortAddresses: readonly IpAddress[] | undefined;
  /** Whether its node-port addresses name loopback, by a prefix that begins there. */
  readonly namesLoopback: boolean;
  /** What is sent to the proxy's own sockets, where it has such; undefined where rules are all that is known. */
  readonly ownSockets: readonly Question[] | undefined;
  readonly detector: LocalTrafficDetector;
  readonly masqueradesAll: boolean;
  readonly serviceCIDRs: readonly string[];
  readonly services: readonly ServiceRecord[];
  readonly endpointSlices: readonly EndpointSliceRecord[];
}

export type Kind = "cluster" | "load-balancer" | "external" | "node-port";

/** An address and a port that a Service answers at. */
export interface Frontend {
  readonly kind: Kind;
  /** Undefined: each that answers for node ports. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  readonly served: ServedPort;
}

export interface ServedPort {
  readonly name: string;
  readonly service: ServiceRecord;
  readonly protocol: string;
  readonly endpoints: readonly StatedEndpoint[];
  /** Undefined: everyone. */
  readonly ranges: readonly Pattern[] | undefined;
  /** Whether it is offered to the outside of the cluster. */
  readonly isExternal: boolean;
  /** Its load balancer's addresses. */
  readonly balancers: readonly IpAddress[];
}

export interface StatedEndpoint extends EndpointRecord {
  readonly port: number;
  readonly end: string;
  readonly isLocal: boolean;
}

/** Of addresses that several Services have, the one of the first kind answers, then that of the first name (docs/differences.md). */
const KINDS: readonly Kind[] = ["cluster", "load-balancer", "external", "node-port"];

/** The first of those with one address and port is the one that answers. */
export function frontendsOf(node: SpecifiedNode): Frontend[] {
  const slices = Map.groupBy(node.endpointSlices, ({ namespace, serviceName }) => `${namespace}/${serviceName}`);
  const found = node.services.flatMap((service) => {
    const own = slices.get(`${service.namespace}/${service.name}`) ?? [];
    const clusterIP = clusterIPOf(service, node.family);
    if (clusterIP === undefined || service.type === "ExternalName") return [];
    return service.ports.flatMap((port) => frontendsOfPort(service, port, clusterIP, { ...node, endpointSlices: own }));
  });
  // A name goes before those that begin with it, as `web/TCP` before `web2/TCP`.
  const order = (frontend: Frontend) => `${KINDS.indexOf(frontend.kind)} ${frontend.served.name}/`;
  return found.sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

function clusterIPOf({ clusterIP, clusterIPs }: ServiceRecord, family: IpFamily): IpAddress | undefined {
  const texts = clusterIPs.length > 0 ? clusterIPs : [clusterIP];
  return texts.map(parseIpAddress).find((ip) => ip !== undefined && familyOf(ip) === family);
}

function frontendsOfPort(
  service: ServiceRecord,
  spec: ServicePortSpec,
  clusterIP: IpAddress,
  node: SpecifiedNode,
): Frontend[] {
  const { port, nodePort } = spec;
  const { family } = node;
  const texts = service.loadBalancerSourceRanges.map((text) => text.trim());
  const listed = texts.flatMap((text) => prefixPatterns(text, family));
  const isUnread = texts.some((text) => text !== "" && parseCidr(text) === undefined);
  // No client is in a list that cannot be read.
  const ranges =
    listed.length === 0 && isUnread ? prefixPatterns(hostCidr(unspecifiedAddress(family)), family) : listed;
  const inFamily = (texts: readonly string[]) => {
    return texts.map(parseIpAddress).filter((ip): ip is IpAddress => ip !== undefined && familyOf(ip) === family);
  };
  const balancers = inFamily(service.loadBalancerIngress.flatMap(({ ip, ipMode }) => (ipMode === "VIP" ? [ip] : [])));
  const externalIPs = inFamily(service.externalIPs);
  const listsEveryone = texts.some((text) => parseCidr(text) === zeroCidr(family));
  const served: ServedPort = {
    name: `${service.namespace}/${service.name}${spec.name === "" ? "" : `:${spec.name}`}`,
    service,
    protocol: spec.protocol.toLowerCase(),
    endpoints: endpointsOf(spec, node),
    ranges: ranges.length > 0 && !listsEveryone ? ranges : undefined,
    isExternal: nodePort !== 0 || balancers.length > 0 || externalIPs.length > 0,
    balancers,
  };
  const at = (kind: Kind, address: IpAddress | undefined, number = port): Frontend => ({
    kind,
    address,
    port: number,
    served,
  });
  return [
    at("cluster", clusterIP),
    ...balancers.map((address) => at("load-balancer", address)),
    ...externalIPs.map((address) => at("external", address)),
    ...(nodePort === 0 ? [] : [at("node-port", undefined, nodePort)]),
  ];
}

/** @param node with the Service's slices alone. Where these list one endpoint more than once, the last by name counts, but for those that terminate (reference endpoints.md §5). */
function endpointsOf({ name: portName, protocol }: ServicePortSpec, node: SpecifiedNode): StatedEndpoint[] {
  const slices = node.endpointSlices.filter(({ addressType }) => addressType === node.family);
  const byEnd = new Map<string, StatedEndpoint>();
  for (const { ports, endpoints } of slices.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    for (const port of ports) {
      if (port.name !== portName || port.protocol !== protocol || port.port === null) continue;
      for (const endpoint of endpoints) {
        const end = joinHostPort(endpoint.address, port.port);
        const known = byEnd.get(end);
        if (known !== undefined && endpoint.terminating) continue;
        byEnd.set(end, { ...endpoint, port: port.port, end, isLocal: endpoint.nodeName === node.name });
      }
    }
  }
  return [...byEnd.values()];
}

export function localOf(endpoints: readonly StatedEndpoint[]): readonly StatedEndpoint[] {
  return readyElseServing(endpoints.filter(({ isLocal }) => isLocal));
}

/** Ready ones; where there are none, those that terminate and still serve (KEP-1669). */
function readyElseServing(endpoints: readonly StatedEndpoint[]): readonly StatedEndpoint[] {
  const ready = endpoints.filter((endpoint) => endpoint.ready);
  return ready.length > 0 ? ready : endpoints.filter(({ serving, terminating }) => serving && terminating);
}

/** Those of the whole cluster, nearer ones where every ready endpoint has a hint and one is for here (KEP-2433, KEP-3015). */
export function usable(endpoints: readonly StatedEndpoint[], { name, zone }: SpecifiedNode): readonly StatedEndpoint[] {
  const ready = endpoints.filter((endpoint) => endpoint.ready);
  const hinted = (hintsOf: (endpoint: StatedEndpoint) => readonly string[] | undefined, here: string | undefined) => {
    const isHinted = here !== undefined && ready.every((endpoint) => (hintsOf(endpoint) ?? []).length > 0);
    return isHinted ? ready.filter((endpoint) => hintsOf(endpoint)?.includes(here) === true) : [];
  };
  for (const near of [hinted(({ nodeHints }) => nodeHints, name), hinted(({ zoneHints }) => zoneHints, zone)]) {
    if (near.length > 0) return near;
  }
  return ready.length > 0 ? ready : readyElseServing(endpoints);
}

/** Whether the address is one of its external IPs. */
export function hasExternal({ externalIPs }: ServiceRecord, address: IpAddress | undefined): boolean {
  return externalIPs.some((text) => parseIpAddress(text) === address);
}

/** The field means nothing where there is no address for the outside. */
export function externalPolicyOf({ type, externalIPs, externalTrafficPolicy }: ServiceRecord): "Cluster" | "Local" {
  return type === "ClusterIP" && externalIPs.length === 0 ? "Cluster" : externalTrafficPolicy;
}

/** Where the node is asked whether it has endpoints: of load balancers whose policy is Local. */
export function healthPortsOf({ type, externalTrafficPolicy, healthCheckNodePort }: ServiceRecord): readonly number[] {
  const hasOne = type === "LoadBalancer" && externalTrafficPolicy === "Local" && healthCheckNodePort !== 0;
  return hasOne ? [healthCheckNodePort] : [];
}
