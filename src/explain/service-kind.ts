/** What two Services have in common that differ in names, addresses and numbers alone. Pure. */
import {
  type EndpointRecord,
  type EndpointSliceRecord,
  objectKeyText,
  type ServiceRecord,
} from "../cluster/objects.ts";
import { parseIpAddress, specialAddress } from "../net/ip.ts";

/** Everything that can decide which sets there are, and how many rules in each chain, as text. Called for each of 10,000 Services. */
export function kindOfService(
  service: ServiceRecord,
  slices: readonly EndpointSliceRecord[],
  nodeName: string,
): string {
  const { type, clusterIP, clusterIPs, ipFamilies, externalIPs, loadBalancerIngress, ports } = service;
  let kind = `${type} ${familyIn(clusterIP)} ${clusterIPs.map(familyIn).join(" ")};${ipFamilies.join(" ")}`;
  for (const { name, protocol, nodePort } of ports) kind += `;${word(name)} ${protocol} ${nodePort !== 0}`;
  kind += `;${service.sessionAffinity} ${service.sessionAffinityTimeoutSeconds} ${service.internalTrafficPolicy}`;
  kind += ` ${service.externalTrafficPolicy} ${service.healthCheckNodePort !== 0}`;
  for (const text of externalIPs) kind += `;E ${externalIn(text)}`;
  for (const { ip, ipMode } of loadBalancerIngress) kind += `;I ${externalIn(ip)} ${ipMode}`;
  for (const range of service.loadBalancerSourceRanges) kind += `;R ${word(range)}`;
  for (const { addressType, ports: own, endpoints } of slices) {
    kind += `;S ${addressType}`;
    for (const { name, protocol, port } of own) kind += ` ${word(name)} ${protocol} ${port === null}`;
    for (const endpoint of endpoints) kind += stateOf(endpoint, nodeName);
  }
  // Of copies of an endpoint one counts, which is not a matter of kind.
  return hasCopies(slices) ? `${kind};${objectKeyText(service)}` : kind;
}

/** A text of users: it may have any character, so its length comes first. */
const word = (text: string): string => `${text.length}:${text}`;

function familyIn(text: string): string {
  if (parseIpAddress(text) === undefined) return word(text);
  return text.includes(":") ? "6" : "4";
}

/** Special addresses of either family are left out of a Service. */
function externalIn(text: string): string {
  const address = parseIpAddress(text);
  return address === undefined || specialAddress(address) !== undefined ? word(text) : familyIn(text);
}

function stateOf(endpoint: EndpointRecord, nodeName: string): string {
  const { ready, serving, terminating, zoneHints, nodeHints } = endpoint;
  const state = `,${endpoint.nodeName === nodeName ? "L" : ""}${ready ? "r" : ""}${serving ? "s" : ""}${terminating ? "t" : ""}`;
  return zoneHints === undefined && nodeHints === undefined ? state : state + JSON.stringify([zoneHints, nodeHints]);
}

function hasCopies(slices: readonly EndpointSliceRecord[]): boolean {
  const seen = new Set<string>();
  let count = 0;
  for (const { endpoints } of slices) {
    for (const { address } of endpoints) seen.add(address);
    count += endpoints.length;
  }
  return seen.size < count;
}
