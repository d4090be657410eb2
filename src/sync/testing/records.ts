/** Small valid objects for tests; everything that a test does not name has the API's default. */
import type { EndpointRecord, EndpointSliceRecord, NodeRecord, ServiceRecord } from "../../cluster/objects.ts";

/** A ClusterIP service `ns/<name>` with one port, `p`, 80. */
export function serviceRecord(name: string, changes: Partial<ServiceRecord> = {}): ServiceRecord {
  return {
    namespace: "ns",
    name,
    type: "ClusterIP",
    clusterIP: "10.0.0.1",
    clusterIPs: ["10.0.0.1"],
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
    ...changes,
  };
}

/** A ready endpoint on another node. */
export function endpointRecord(address: string, changes: Partial<EndpointRecord> = {}): EndpointRecord {
  return {
    addresses: [address],
    nodeName: "other",
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: undefined,
    nodeHints: undefined,
    ...changes,
  };
}

/** The slice `ns/<service>-1` with port `p`, 8080, and one endpoint for each address. */
export function sliceRecord(
  service: string,
  addresses: readonly string[],
  changes: Partial<EndpointSliceRecord> = {},
): EndpointSliceRecord {
  return {
    namespace: "ns",
    name: `${service}-1`,
    serviceName: service,
    addressType: "IPv4",
    ports: [{ name: "p", protocol: "TCP", port: 8080 }],
    endpoints: addresses.map((address) => endpointRecord(address)),
    lastChangeTriggerTime: "",
    resourceVersion: addresses.join(","),
    ...changes,
  };
}

/** A node without addresses, labels and pod CIDRs. */
export function nodeRecord(name: string, changes: Partial<NodeRecord> = {}): NodeRecord {
  return {
    name,
    uid: `uid-${name}`,
    zone: undefined,
    addresses: [],
    podCIDRs: [],
    taintKeys: [],
    isBeingDeleted: false,
    ...changes,
  };
}
