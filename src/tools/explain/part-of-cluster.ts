/**
 * The part of a cluster that determines some Services: the Services, their slices, and the Services that share an address with them.
 * With it, a question about one Service among 10,000 costs only as much as that Service.
 */

import type { ModeInspection } from "../../contract/inspection.ts";
import type { ClusterRecords } from "../../model/objects.ts";
import {
  type EndpointSliceRecord,
  type NodeRecord,
  objectKeyText,
  type ServicePortSpec,
  type ServiceRecord,
} from "../../model/objects.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import type { WithStanding } from "../../model/standing-ports.ts";
import { type IpAddress, joinHostPort, parseIpAddress } from "../../net/ip.ts";
import type { Target } from "./target.ts";

/** The objects of a cluster; their reader has already reported problems. */
export type Objects = Omit<ClusterRecords, "problems"> & WithStanding;

/** The objects of these Services (`namespace/name`), and all nodes. @param services undefined: all. */
export function partOf(objects: Objects, services: ReadonlySet<string> | undefined): Objects {
  if (services === undefined) return objects;
  return {
    ...objects,
    services: objects.services.filter((service) => services.has(objectKeyText(service))),
    // Slices without a Service's name are kept, to say why they are not used.
    endpointSlices: objects.endpointSlices.filter(
      (slice) => slice.serviceName === "" || services.has(`${slice.namespace}/${slice.serviceName}`),
    ),
  };
}

/** These Services, and all others that declare one of their addresses or node ports, which only one can own. */
export function withNeighbours(all: readonly ServiceRecord[], chosen: ReadonlySet<string>): ReadonlySet<string> {
  const own = all.filter((service) => chosen.has(objectKeyText(service)));
  const places = new Set(own.flatMap(placesOf));
  // At an address of the node, a port precedes a node port with its number, and ipvs mode masquerades by that number alone.
  const [nodePorts, ports] = [new Set(own.flatMap(nodePortsOf)), new Set(own.flatMap(portsOf))];
  const together = new Set(chosen);
  for (const service of all) {
    const isNear =
      placesOf(service).some((place) => places.has(place)) ||
      portsOf(service).some((port) => nodePorts.has(port)) ||
      nodePortsOf(service).some((port) => ports.has(port));
    if (isNear) together.add(objectKeyText(service));
  }
  return together;
}

function placesOf(service: ServiceRecord): string[] {
  return [...addressesOf(service), ...nodePortsOf(service)];
}

function nodePortsOf({ ports }: ServiceRecord): string[] {
  return ports.flatMap(({ nodePort, protocol }) => (nodePort === 0 ? [] : [`${protocol} ${nodePort}`]));
}

function portsOf({ ports }: ServiceRecord): string[] {
  return ports.map(({ port, protocol }) => `${protocol} ${port}`);
}

/** The addresses of its frontends, of both families. */
export function addressesOf({ clusterIPs, clusterIP, externalIPs, loadBalancerIngress }: ServiceRecord): string[] {
  const texts = [...clusterIPs, clusterIP, ...externalIPs, ...loadBalancerIngress.map(({ ip }) => ip)];
  return texts.flatMap((text) => parseIpAddress(text) ?? []);
}

/** The Node that has the address. */
export function nodeOfAddress({ nodes }: Pick<Objects, "nodes">, address: IpAddress): NodeRecord | undefined {
  return nodes.find(({ addresses }) => addresses.some((one) => parseIpAddress(one.address) === address));
}

/** How many Services with one port number are kept: with this many, `find` names none of them. */
const FEW = 6;

/**
 * The Services that a target can mean. For a node port that no Service has, some with its number as a port, which may have been
 * meant.
 *
 * @param inspection of the mode, which knows the owner of a name in the kernel.
 */
export function servicesOfTarget(objects: Objects, target: Target, inspection: ModeInspection): ReadonlySet<string> {
  const meant = objects.services.filter(predicateOf(objects, target, inspection)).map(objectKeyText);
  if (meant.length > 0) return withNeighbours(objects.services, new Set(meant));
  if (target.kind === "node-port") return withPort(objects.services, target);
  if (target.kind !== "address") return new Set();
  // Services that are not served have slices too.
  return new Set([...servicesBehind(objects, target.address), ...withPort(objects.services, target)]);
}

/** Some Services with this number as a port. */
function withPort(
  services: readonly ServiceRecord[],
  { port, protocol }: Pick<Extract<Target, { kind: "address" }>, "port" | "protocol">,
): ReadonlySet<string> {
  const names = new Set<string>();
  for (const service of services) {
    if (names.size >= FEW) break;
    const hasPort = service.ports.some((one) => one.port === port && (protocol ?? one.protocol) === one.protocol);
    // A Service without any cluster IP is not served.
    if (hasPort && service.clusterIPs.some((text) => parseIpAddress(text) !== undefined)) {
      names.add(objectKeyText(service));
    }
  }
  return names;
}

function predicateOf(
  objects: Objects,
  target: Target,
  inspection: ModeInspection,
): (service: ServiceRecord) => boolean {
  switch (target.kind) {
    case "service":
      return (service) => objectKeyText(service) === target.service;
    case "node-port":
      return (service) =>
        service.healthCheckNodePort === target.port || service.ports.some(({ nodePort }) => nodePort === target.port);
    case "address": {
      const { address, port } = target;
      const behind = servicesBehind(objects, address);
      return (service) =>
        behind.has(objectKeyText(service)) ||
        addressesOf(service).includes(address) ||
        service.ports.some(({ nodePort }) => nodePort !== 0 && nodePort === port);
    }
    case "name": {
      const hasName = ownsName(objects, target.name, inspection);
      const behind = behindHostName(objects, target.name);
      return behind === undefined ? hasName : (service) => objectKeyText(service) === behind.service;
    }
  }
}

/** The Services with an endpoint at the address, as `namespace/name`, served or not. */
export function servicesBehind(
  { endpointSlices }: Pick<Objects, "endpointSlices">,
  address: IpAddress,
): ReadonlySet<string> {
  const slices = endpointSlices.filter(({ serviceName, endpoints }) => {
    return serviceName !== "" && endpoints.some((one) => one.address === address || one.unused?.includes(address));
  });
  return new Set(slices.map(({ namespace, serviceName }) => `${namespace}/${serviceName}`));
}

/** The objects that hold the host names of Services. */
export type HostNames = Pick<Objects, "serviceNotes">;

/** The Service, as `namespace/name`, whose load balancer has this host name. @param text may end in `:port`. */
export function behindHostName({ serviceNotes }: HostNames, text: string) {
  const [host = "", port] = text.toLowerCase().split(":");
  const found = serviceNotes?.find(({ hostNames }) => hostNames.includes(host));
  return found && { service: objectKeyText(found), host, port };
}

/** Whether a Service has this name, or owns it in the kernel. */
function ownsName(
  { endpointSlices }: Objects,
  wanted: string,
  { ownerTest }: ModeInspection,
): (service: ServiceRecord) => boolean {
  const isOwner = ownerTest(wanted);
  if (isOwner === undefined) return ({ name }) => name === wanted;
  let slices: ReadonlyMap<string, readonly EndpointSliceRecord[]> | undefined;
  return ({ namespace, name, ports }) => {
    return ports.some((port) => {
      const identity = servicePortName(namespace, name, port.name, port.protocol);
      return isOwner(identity, () => {
        slices ??= slicesByService(endpointSlices);
        return endpointTexts(slices.get(identity.service) ?? [], port);
      });
    });
  };
}

function* endpointTexts(
  slices: readonly EndpointSliceRecord[],
  { name, protocol }: ServicePortSpec,
): Generator<string, void> {
  for (const { ports, endpoints } of slices) {
    for (const { port, ...own } of ports) {
      if (port === null || own.name !== name || own.protocol !== protocol) continue;
      for (const { address } of endpoints) yield joinHostPort(address, port);
    }
  }
}

/** Slices by `namespace/name` of their Service, or of that for which another controller means them. */
export function slicesByService(
  slices: readonly EndpointSliceRecord[],
): ReadonlyMap<string, readonly EndpointSliceRecord[]> {
  return Map.groupBy(slices, ({ namespace, serviceName, meantFor }) => `${namespace}/${serviceName || meantFor}`);
}
