/** Where an address is among the objects although nothing leads to it, and why not. */
import { type EndpointSliceRecord, objectKeyText, type ServiceRecord } from "../../model/objects.ts";
import { familyOf, type IpAddress, parseIpAddress } from "../../net/ip.ts";
import { nodeOfAddress, type Objects } from "./part-of-cluster.ts";
import { NO_SERVICE_NAME, notFirst } from "./stated-endpoints.ts";

/** A sentence without its full stop; undefined if the address is nowhere. */
export function unusedAddress(objects: Objects, address: IpAddress): string | undefined {
  for (const service of objects.services) {
    const place = placeIn(service, address);
    if (place !== undefined) return place;
  }
  for (const slice of objects.endpointSlices) {
    const own = slice.endpoints.find((one) => one.address === address || one.unused?.includes(address));
    if (own === undefined) continue;
    const pod = own.pod === undefined ? "" : `, of pod ${own.pod}`;
    const where = `${address} is in EndpointSlice ${objectKeyText(slice)}${pod}`;
    return `${where}, and is not used: ${own.address === address ? whyNot(objects, slice) : notFirst(own.address)}`;
  }
  const pod = objects.pods?.find(({ addresses }) => addresses.includes(address));
  if (pod !== undefined) return `${address} is the pod ${objectKeyText(pod)}, which is an endpoint of no Service`;
  const node = nodeOfAddress(objects, address);
  return node && `${address} is an address of the Node ${node.name}; a node port is asked for as ${address}:PORT`;
}

function placeIn(service: ServiceRecord, address: IpAddress): string | undefined {
  const { clusterIPs, externalIPs, loadBalancerIngress } = service;
  const has = (texts: readonly string[]) => texts.some((text) => parseIpAddress(text) === address);
  const isIngress = has(loadBalancerIngress.map(({ ip }) => ip));
  if (!isIngress && !has(externalIPs)) return undefined;
  const families = new Set(clusterIPs.flatMap((text) => parseIpAddress(text) ?? []).map(familyOf));
  const what = `${isIngress ? "a load-balancer address" : "an external IP"} of ${objectKeyText(service)}`;
  const why =
    families.has(familyOf(address)) || families.size === 0
      ? "the Service has no port, or no cluster IP, that leads there"
      : `the Service is ${[...families].join()} only`;
  return `${address} is ${what}, and is not used: ${why}`;
}

function whyNot({ services }: Objects, { namespace, serviceName, ports, meantFor }: EndpointSliceRecord): string {
  if (serviceName === "") {
    return meantFor === undefined
      ? NO_SERVICE_NAME
      : `${NO_SERVICE_NAME} (another controller's label names ${meantFor})`;
  }
  const key = `${namespace}/${serviceName}`;
  const service = services.find((one) => objectKeyText(one) === key);
  if (service === undefined) return `there is no Service "${key}"`;
  if (ports.length === 0) return `the slice has no ports, as when a pod lacks the port that ${key} names as targetPort`;
  const names = ports.map(
    ({ name, protocol, port }) => `${name || "(no name)"}/${protocol}${port === null ? " without a number" : ""}`,
  );
  return `its ports (${names.join(", ")}) are none of ${key}`;
}
