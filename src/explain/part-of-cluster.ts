/**
 * The part of a cluster that says all about some Services: they, their slices, and the Services that share an address with them.
 * So that a question about one Service among 10,000 costs what that Service costs. Pure.
 */
import { objectKeyText, type ServiceRecord } from "../cluster/objects.ts";
import { parseIpAddress } from "../net/ip.ts";
import type { Objects } from "./explained-cluster.ts";
import type { Target } from "./target.ts";

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
  const places = new Set(all.filter((service) => chosen.has(objectKeyText(service))).flatMap(placesOf));
  const together = new Set(chosen);
  for (const service of all) {
    if (placesOf(service).some((place) => places.has(place))) together.add(objectKeyText(service));
  }
  return together;
}

function placesOf(service: ServiceRecord): string[] {
  const nodePorts = service.ports.flatMap(({ nodePort, protocol }) =>
    nodePort === 0 ? [] : [`${protocol} ${nodePort}`],
  );
  return [...addressesOf(service), ...nodePorts];
}

function addressesOf({ clusterIPs, clusterIP, externalIPs, loadBalancerIngress }: ServiceRecord): string[] {
  const texts = [...clusterIPs, clusterIP, ...externalIPs, ...loadBalancerIngress.map(({ ip }) => ip)];
  return texts.flatMap((text) => parseIpAddress(text) ?? []);
}

/** The Services that a target can be about; undefined when only the names in the kernel tell, or when there is none. */
export function servicesOfTarget(objects: Objects, target: Target): ReadonlySet<string> | undefined {
  const isMeant = predicateOf(objects, target);
  if (isMeant === undefined) return undefined;
  const meant = objects.services.filter(isMeant).map(objectKeyText);
  return meant.length === 0 ? undefined : withNeighbours(objects.services, new Set(meant));
}

function predicateOf(objects: Objects, target: Target): ((service: ServiceRecord) => boolean) | undefined {
  switch (target.kind) {
    case "service":
      return (service) => objectKeyText(service) === target.service;
    case "node-port":
      return (service) =>
        service.healthCheckNodePort === target.port || service.ports.some(({ nodePort }) => nodePort === target.port);
    case "address": {
      const { address, port } = target;
      const slices = objects.endpointSlices.filter(({ endpoints }) => endpoints.some((one) => one.address === address));
      const behind = new Set(slices.map(({ namespace, serviceName }) => `${namespace}/${serviceName}`));
      return (service) =>
        behind.has(objectKeyText(service)) ||
        addressesOf(service).includes(address) ||
        service.ports.some(({ nodePort }) => nodePort !== 0 && nodePort === port);
    }
    case "name":
      return undefined;
  }
}
