/** Services as their objects state them: addresses, and which endpoints should answer. Part of the specification. */

import { hashTurns } from "../../model/hash-order.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { EndpointRecord, EndpointSliceRecord, ServicePortSpec, ServiceRecord } from "../../model/objects.ts";
import { servicePortKey } from "../../model/service-port-name.ts";
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
} from "../../net/ip.ts";
import { prefixPatterns } from "../../trace/facts.ts";
import { hashedBy } from "../../trace/netfilter/walk-state.ts";
import type { Question } from "../../trace/question.ts";
import type { Pattern } from "../../trace/value.ts";

/** The objects, and facts about the node. */
export interface SpecifiedNode {
  readonly family: IpFamily;
  readonly name: string;
  readonly zone: string | undefined;
  /** All its addresses, including loopback. */
  readonly addresses: readonly IpAddress[];
  readonly nodeIP: IpAddress;
  /** The addresses of other Nodes. @default none */
  readonly otherNodes?: ReadonlyMap<IpAddress, string> | undefined;
  /** Addresses that serve node ports; undefined: all except loopback. */
  readonly nodePortAddresses: readonly IpAddress[] | undefined;
  /** Whether `nodePortAddresses` names loopback, with a prefix that starts there. */
  readonly namesLoopback: boolean;
  /** Matches packets to the proxy's own sockets; undefined if only rules are known. */
  readonly ownSockets: readonly Question[] | undefined;
  readonly detector: LocalTrafficDetector;
  readonly masqueradesAll: boolean;
  /** Of the hashes that choose endpoints. @default hashes do not count */
  readonly hashSeed?: number | undefined;
  readonly serviceCIDRs: readonly string[];
  readonly services: readonly ServiceRecord[];
  readonly endpointSlices: readonly EndpointSliceRecord[];
  /** By service port key and end: endpoints that do not answer this node. @default none is known */
  readonly leftOut?: ReadonlyMap<string, ReadonlyMap<string, string>> | undefined;
}

export type Kind = "cluster" | "load-balancer" | "external" | "node-port";

/** An address and port at which a Service answers. */
export interface Frontend {
  readonly kind: Kind;
  /** Undefined: every address that serves node ports. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  readonly served: ServedPort;
}

export interface ServedPort {
  readonly name: string;
  readonly service: ServiceRecord;
  readonly protocol: string;
  readonly endpoints: readonly StatedEndpoint[];
  /** Allowed sources. Undefined: all. */
  readonly ranges: readonly Pattern[] | undefined;
  /** Whether clients outside the cluster can reach it. */
  readonly isExternal: boolean;
  /** The addresses of its load balancer. */
  readonly balancers: readonly IpAddress[];
}

export interface StatedEndpoint extends EndpointRecord {
  readonly port: number;
  readonly end: string;
  readonly isLocal: boolean;
  /** The annotation of its slice; undefined if it has none. */
  readonly weight: number | undefined;
  readonly isLeftOut: boolean;
}

/** If several Services have an address, the first kind wins, then the first name (docs/differences.md). */
const KINDS: readonly Kind[] = ["cluster", "load-balancer", "external", "node-port"];

/** Of frontends with the same address and port, the first one answers. */
export function frontendsOf(node: SpecifiedNode): Frontend[] {
  const slices = Map.groupBy(node.endpointSlices, ({ namespace, serviceName }) => `${namespace}/${serviceName}`);
  const found = node.services.flatMap((service) => {
    const own = slices.get(`${service.namespace}/${service.name}`) ?? [];
    const clusterIP = clusterIPOf(service, node.family);
    if (clusterIP === undefined || service.type === "ExternalName") return [];
    return service.ports.flatMap((port) => frontendsOfPort(service, port, clusterIP, { ...node, endpointSlices: own }));
  });
  // A name sorts before longer ones that start with it: `web/TCP` before `web2/TCP`.
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
  // A list without a readable range admits no client.
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

/** @param node with only the Service's slices. If these list an endpoint twice, the last slice by name counts, unless it says terminating (reference endpoints.md §5). */
function endpointsOf({ name: portName, protocol }: ServicePortSpec, node: SpecifiedNode): StatedEndpoint[] {
  const slices = node.endpointSlices.filter(({ addressType }) => addressType === node.family);
  const byEnd = new Map<string, StatedEndpoint>();
  for (const { namespace, serviceName, ports, endpoints, weight } of slices.sort((a, b) =>
    a.name < b.name ? -1 : 1,
  )) {
    for (const port of ports) {
      if (port.name !== portName || port.protocol !== protocol || port.port === null) continue;
      for (const endpoint of endpoints) {
        const end = joinHostPort(endpoint.address, port.port);
        const known = byEnd.get(end);
        const isLeftOut =
          node.leftOut?.get(servicePortKey(namespace, serviceName, portName, protocol))?.has(end) === true;
        const isLocal = endpoint.nodeName === node.name;
        const stated = { ...endpoint, port: port.port, end, isLocal, weight, isLeftOut };
        const chosen = known !== undefined && endpoint.terminating ? known : stated;
        byEnd.set(end, { ...chosen, weight: known === undefined ? weight : larger(known.weight, weight) });
      }
    }
  }
  return [...byEnd.values()];
}

const UNWEIGHTED = 100;

function larger(one: number | undefined, other: number | undefined): number | undefined {
  return one === other ? one : Math.max(one ?? UNWEIGHTED, other ?? UNWEIGHTED);
}

/** Weight 0: no new connections. */
function undrained(endpoints: readonly StatedEndpoint[]): readonly StatedEndpoint[] {
  return endpoints.filter(({ weight }) => weight !== 0);
}

/**
 * The share of each of these endpoints (docs/which-endpoint.md): by weight, in whole numbers of at least 1. Where one is above 16,
 * all are halved and rounded until the mean is below 32, and the sum at most 4,096.
 */
export function sharesOf(endpoints: readonly StatedEndpoint[]): readonly number[] {
  const isWeighted = endpoints.some(({ weight }) => weight !== undefined);
  const weights = endpoints.map(({ weight }) => (isWeighted ? (weight ?? UNWEIGHTED) : 1));
  const halved = (times: number) => weights.map((weight) => Math.max(1, Math.round(weight / 2 ** times)));
  const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);
  const fits = (numbers: readonly number[]) =>
    Math.max(...numbers) === 1 ||
    (sum(numbers) <= 4096 && (Math.max(...numbers) <= 16 || sum(numbers) / numbers.length < 32));
  let times = 0;
  while (!fits(halved(times))) times += 1;
  const parts = halved(times);
  return parts.map((part) => part / sum(parts));
}

/**
 * For each end the clients that get it, if the Service asks for a hash: they are not below the bounds of the endpoints before, and below
 * its own. Order, seeds and bounds are defined in one place, for planners as well.
 */
export function hashedInOrder(
  endpoints: readonly StatedEndpoint[],
  { balancing }: ServiceRecord,
  { hashSeed }: SpecifiedNode,
): ReadonlyMap<string, string> | undefined {
  if (balancing === undefined || hashSeed === undefined) return undefined;
  const turns = hashTurns(
    endpoints.map(({ address: ip, port, end, weight }) => ({ ip, port, end, ...(weight !== undefined && { weight }) })),
    hashSeed,
  );
  let missed = "";
  const what = balancing === "FlowHash" ? "source and its port" : "source";
  return new Map(
    turns.map(({ endpoint, seed, below }, index) => {
      const by = `the hash of the ${what} with seed ${seed} is below ${below}`;
      const hashed = index === turns.length - 1 ? missed : hashedBy(missed, by);
      missed = hashedBy(missed, `not: ${by}`);
      return [endpoint.end, hashed];
    }),
  );
}

export function localOf(endpoints: readonly StatedEndpoint[]): readonly StatedEndpoint[] {
  return answering(readyElseServing(undrained(endpoints).filter(({ isLocal }) => isLocal)));
}

/** Those that are not left out; all of them if no other is there. */
function answering(chosen: readonly StatedEndpoint[]): readonly StatedEndpoint[] {
  const rest = chosen.filter(({ isLeftOut }) => !isLeftOut);
  return rest.length > 0 ? rest : chosen;
}

/** Ready endpoints; if there are none, terminating ones that still serve (KEP-1669). */
function readyElseServing(endpoints: readonly StatedEndpoint[]): readonly StatedEndpoint[] {
  const ready = endpoints.filter((endpoint) => endpoint.ready);
  return ready.length > 0 ? ready : endpoints.filter(({ serving, terminating }) => serving && terminating);
}

/** Endpoints of the whole cluster; only near ones if every ready endpoint has hints and one is for here (KEP-2433, KEP-3015). */
export function usable(all: readonly StatedEndpoint[], { name, zone }: SpecifiedNode): readonly StatedEndpoint[] {
  const endpoints = undrained(all);
  const ready = endpoints.filter((endpoint) => endpoint.ready);
  const hinted = (hintsOf: (endpoint: StatedEndpoint) => readonly string[] | undefined, here: string | undefined) => {
    const isHinted = here !== undefined && ready.every((endpoint) => (hintsOf(endpoint) ?? []).length > 0);
    return isHinted ? ready.filter((endpoint) => hintsOf(endpoint)?.includes(here) === true) : [];
  };
  for (const near of [hinted(({ nodeHints }) => nodeHints, name), hinted(({ zoneHints }) => zoneHints, zone)]) {
    if (near.length > 0) return answering(near);
  }
  return answering(readyElseServing(endpoints));
}

/** Whether the address is one of its external IPs. */
export function hasExternal({ externalIPs }: ServiceRecord, address: IpAddress | undefined): boolean {
  return externalIPs.some((text) => parseIpAddress(text) === address);
}

/** The field has no meaning without an external address. */
export function externalPolicyOf({ type, externalIPs, externalTrafficPolicy }: ServiceRecord): "Cluster" | "Local" {
  return type === "ClusterIP" && externalIPs.length === 0 ? "Cluster" : externalTrafficPolicy;
}

/** Health-check node ports: load balancers with policy Local have one. */
export function healthPortsOf({ type, externalTrafficPolicy, healthCheckNodePort }: ServiceRecord): readonly number[] {
  const hasOne = type === "LoadBalancer" && externalTrafficPolicy === "Local" && healthCheckNodePort !== 0;
  return hasOne ? [healthCheckNodePort] : [];
}

/** What decides about a frontend, for `why`. */
export function frontendText({ kind, served }: Frontend): string {
  const { name, service, endpoints } = served;
  const policy = kind === "cluster" ? service.internalTrafficPolicy : externalPolicyOf(service);
  const word = kind === "cluster" ? "internalTrafficPolicy" : "externalTrafficPolicy";
  const ready = endpoints.filter((endpoint) => endpoint.ready).length;
  const kindWords = kind === "node-port" ? "node port" : `${kind} IP`;
  return `${name}, ${kindWords}, ${word} ${policy}, ready endpoints: ${ready} of ${endpoints.length}`;
}
