/** Builders of valid records for tests; every field can be overridden. */

import { type IpAddress, joinHostPort, parseIpAddress } from "../../net/ip.ts";
import type { Endpoint } from "../endpoint.ts";
import type { EndpointRecord, EndpointSlicePort, EndpointSliceRecord, ServiceRecord } from "../objects.ts";
import type { ServicePort } from "../service-port.ts";
import { servicePortName } from "../service-port-name.ts";

/** A ClusterIP service `ns1/svc1` at 172.16.0.1 with one TCP port 80 named `p`. */
export function makeService(overrides: Partial<ServiceRecord> = {}): ServiceRecord {
  return {
    namespace: "ns1",
    name: "svc1",
    uid: "",
    type: "ClusterIP",
    clusterIP: "172.16.0.1",
    clusterIPs: ["172.16.0.1"],
    ipFamilies: ["IPv4"],
    ports: [{ name: "p", protocol: "TCP", port: 80, nodePort: 0 }],
    externalIPs: [],
    loadBalancerSourceRanges: [],
    loadBalancerIngress: [],
    sessionAffinity: "None",
    sessionAffinityTimeoutSeconds: 0,
    internalTrafficPolicy: "Cluster",
    externalTrafficPolicy: "Cluster",
    healthCheckNodePort: 0,
    ...overrides,
  };
}

/** A ready endpoint without node name or hints. */
export function makeEndpointRecord(address: string, overrides: Partial<EndpointRecord> = {}): EndpointRecord {
  return {
    address: ip(address),
    nodeName: "",
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: undefined,
    nodeHints: undefined,
    ...overrides,
  };
}

export const TCP_80: EndpointSlicePort = { name: "p", protocol: "TCP", port: 80 };
export const UDP_53: EndpointSlicePort = { name: "dns", protocol: "UDP", port: 53 };

/** An IPv4 slice `ns1/svc1-a` of `svc1` with the port {@link TCP_80} and no endpoints. */
export function makeSlice(overrides: Partial<EndpointSliceRecord> = {}): EndpointSliceRecord {
  return {
    namespace: "ns1",
    name: "svc1-a",
    serviceName: "svc1",
    addressType: "IPv4",
    ports: [TCP_80],
    endpoints: [],
    lastChangeTriggerTime: "",
    resourceVersion: "1",
    ...overrides,
  };
}

/** Parses a valid address. */
export function ip(text: string): IpAddress {
  const address = parseIpAddress(text);
  if (address === undefined) throw new TypeError(`not an address: ${text}`);
  return address;
}

/** A ready, remote endpoint. */
export function makeEndpoint(address: string, port = 80, overrides: Partial<Endpoint> = {}): Endpoint {
  return {
    ip: ip(address),
    port,
    text: joinHostPort(ip(address), port),
    isLocal: false,
    isReady: true,
    isServing: true,
    isTerminating: false,
    zoneHints: undefined,
    nodeHints: undefined,
    ...overrides,
  };
}

/** The IPv4 service port of {@link makeService}. */
export function makeServicePort(overrides: Partial<ServicePort> = {}): ServicePort {
  return {
    name: servicePortName("ns1", "svc1", "p", overrides.protocol ?? "TCP"),
    clusterIP: ip("172.16.0.1"),
    port: 80,
    protocol: "TCP",
    nodePort: 0,
    externalIPs: [],
    loadBalancerVIPs: [],
    loadBalancerSourceRanges: [],
    sessionAffinity: "None",
    stickyMaxAgeSeconds: 0,
    externalPolicyLocal: false,
    internalPolicyLocal: false,
    healthCheckNodePort: 0,
    isExternallyAccessible: false,
    ...overrides,
  };
}
