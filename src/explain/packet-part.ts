/**
 * The part of a cluster that one packet can meet, so that a trace among 10,000 services makes the model and the plan of a handful. Where
 * what is shared by all depends on which kinds of Services there are, one of each kind is in it. Pure.
 */
import { type EndpointSliceRecord, objectKeyText, type ServiceRecord } from "../cluster/objects.ts";
import { type IpAddress, parseIpAddress } from "../net/ip.ts";
import type { Objects } from "./explained-cluster.ts";
import { partOf, slicesByService, withNeighbours } from "./part-of-cluster.ts";

/** Where a packet goes, as it reaches the node. */
export interface PacketEnd {
  readonly destination: IpAddress;
  readonly port: number;
}

/**
 * The objects of these Services alone: those that have the destination as an address, an endpoint or a node port; those that have an
 * address or an endpoint in common with what these lead to; one of each kind; and all that share an address with any of them.
 *
 * @param nodeName decides which endpoints are local.
 */
export function partForPacket(objects: Objects, nodeName: string, { destination, port }: PacketEnd): Objects {
  const slices = slicesByService(objects.endpointSlices);
  const reached = new Set<string>([destination]);
  for (const service of servicesAt(objects, slices, reached, port)) {
    for (const { endpoints } of slices.get(service) ?? []) for (const { address } of endpoints) reached.add(address);
  }
  const chosen = servicesAt(objects, slices, reached, port);
  const kinds = new Map<string, string>();
  for (const service of objects.services) {
    const name = objectKeyText(service);
    const kind = kindOf(service, slices.get(name) ?? [], nodeName);
    const known = kinds.get(kind);
    if (known === undefined || name < known) kinds.set(kind, name);
  }
  return partOf(objects, withNeighbours(objects.services, new Set([...chosen, ...kinds.values()])));
}

type SlicesByService = ReadonlyMap<string, readonly EndpointSliceRecord[]>;

function servicesAt(
  { services }: Objects,
  slices: SlicesByService,
  addresses: ReadonlySet<string>,
  port: number,
): ReadonlySet<string> {
  const isOne = (text: string): boolean => addresses.has(text) || addresses.has(parseIpAddress(text) ?? "");
  const found = new Set<string>();
  for (const service of services) {
    const { clusterIP, clusterIPs, externalIPs, loadBalancerIngress, ports, healthCheckNodePort } = service;
    const name = objectKeyText(service);
    const isThere =
      healthCheckNodePort === port ||
      ports.some(({ nodePort }) => nodePort === port) ||
      isOne(clusterIP) ||
      clusterIPs.some(isOne) ||
      externalIPs.some(isOne) ||
      loadBalancerIngress.some(({ ip }) => isOne(ip)) ||
      slices.get(name)?.some(({ endpoints }) => endpoints.some(({ address }) => addresses.has(address))) === true;
    if (isThere) found.add(name);
  }
  return found;
}

/** Everything that can decide which sets and rules there are, and no address, name or port. */
function kindOf(service: ServiceRecord, slices: readonly EndpointSliceRecord[], nodeName: string): string {
  const { type, clusterIP, clusterIPs, ipFamilies, externalIPs, loadBalancerIngress, ports } = service;
  const familyOf = (text: string): string => (text.includes(":") ? "6" : text.includes(".") ? "4" : text);
  return JSON.stringify([
    type,
    [clusterIP, ...clusterIPs, "", ...externalIPs].map(familyOf),
    ipFamilies,
    loadBalancerIngress.map(({ ip, ipMode }) => [familyOf(ip), ipMode]),
    service.loadBalancerSourceRanges,
    ports.map(({ name, protocol, nodePort }) => [name, protocol, nodePort !== 0]),
    service.sessionAffinity,
    service.sessionAffinityTimeoutSeconds,
    service.internalTrafficPolicy,
    service.externalTrafficPolicy,
    service.healthCheckNodePort !== 0,
    slices.map(({ addressType, ports: own, endpoints }) => [
      addressType,
      own.map(({ name, protocol, port }) => [name, protocol, port === null]),
      endpoints.map((one) => {
        const { ready, serving, terminating, zoneHints, nodeHints } = one;
        const state = `${one.nodeName === nodeName ? "L" : ""}${ready ? "r" : ""}${serving ? "s" : ""}${terminating ? "t" : ""}`;
        return zoneHints === undefined && nodeHints === undefined ? state : [state, zoneHints, nodeHints];
      }),
    ]),
  ]);
}
