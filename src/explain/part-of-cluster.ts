/**
 * The part of a cluster that says all about some Services: they, their slices, and the Services that share an address with them.
 * So that a question about one Service among 10,000 costs what that Service costs. Pure.
 */
import type { ClusterRecords } from "../cluster/manifests/read-manifests.ts";
import {
  type EndpointSliceRecord,
  objectKeyText,
  type ServicePortSpec,
  type ServiceRecord,
} from "../cluster/objects.ts";
import type { ModeInspection } from "../dataplane/inspection.ts";
import { servicePortName } from "../model/service-port-name.ts";
import { type IpAddress, joinHostPort, parseIpAddress } from "../net/ip.ts";
import type { Target } from "./target.ts";

/** The objects of a cluster; what is wrong with them has been told by their reader. */
export type Objects = Omit<ClusterRecords, "problems">;

/** The objects of these Services, as `namespace/name`, with all nodes; undefined stands for all Services. */
export function partOf(objects: Objects, services: ReadonlySet<string> | undefined): Objects {
  if (services === undefined) return objects;
  return {
    ...objects,
    services: objects.services.filter((service) => services.has(objectKeyText(service))),
    endpointSlices: objects.endpointSlices.filter((slice) => services.has(`${slice.namespace}/${slice.serviceName}`)),
  };
}

/** These Services, and the others that declare an address or a node port of theirs: one of them owns it. */
export function withNeighbours(all: readonly ServiceRecord[], chosen: ReadonlySet<string>): ReadonlySet<string> {
  const own = all.filter((service) => chosen.has(objectKeyText(service)));
  const places = new Set(own.flatMap(placesOf));
  // At an address of the node a port goes before a node port of its number, and ipvs mode masquerades by the number alone.
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

/** Those of its frontends, of both families. */
export function addressesOf({ clusterIPs, clusterIP, externalIPs, loadBalancerIngress }: ServiceRecord): string[] {
  const texts = [...clusterIPs, clusterIP, ...externalIPs, ...loadBalancerIngress.map(({ ip }) => ip)];
  return texts.flatMap((text) => parseIpAddress(text) ?? []);
}

/** With more service ports of one number, `find` names none of them. */
const FEW = 6;

/**
 * The Services that a target can be about. For a node port that no Service has, some of those that have its number as a port: it was
 * perhaps meant.
 *
 * @param inspection of the mode, which knows whose a name in the kernel can be.
 */
export function servicesOfTarget(objects: Objects, target: Target, inspection: ModeInspection): ReadonlySet<string> {
  const meant = objects.services.filter(predicateOf(objects, target, inspection)).map(objectKeyText);
  if (meant.length > 0) return withNeighbours(objects.services, new Set(meant));
  if (target.kind === "node-port") return withPort(objects.services, target);
  if (target.kind !== "address") return new Set();
  // Services that are not served have slices, too.
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
    // What has no cluster IP of either family is not served.
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

/** Those that have an endpoint at the address, as `namespace/name`, served or not. */
export function servicesBehind(
  { endpointSlices }: Pick<Objects, "endpointSlices">,
  address: IpAddress,
): ReadonlySet<string> {
  const slices = endpointSlices.filter(({ serviceName, endpoints }) => {
    return serviceName !== "" && endpoints.some((one) => one.address === address);
  });
  return new Set(slices.map(({ namespace, serviceName }) => `${namespace}/${serviceName}`));
}

/** What says which host names Services have. */
export type HostNames = Pick<Objects, "serviceNotes">;

/** The Service, as `namespace/name`, whose load balancer has this host name, with or without a port behind it. */
export function behindHostName({ serviceNotes }: HostNames, text: string) {
  const [host = "", port] = text.toLowerCase().split(":");
  const found = serviceNotes?.find(({ hostNames }) => hostNames.includes(host));
  return found && { service: objectKeyText(found), host, port };
}

/** The Service has this name, or owns this name in the kernel. */
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

/** By `namespace/name` of their Service. */
export function slicesByService(
  slices: readonly EndpointSliceRecord[],
): ReadonlyMap<string, readonly EndpointSliceRecord[]> {
  return Map.groupBy(slices, ({ namespace, serviceName }) => `${namespace}/${serviceName}`);
}
