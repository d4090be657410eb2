/** Small valid objects for tests, with the API's defaults for what a test does not name. */
import type { EndpointRecord, EndpointSliceRecord, NodeRecord, ServiceRecord } from "../../../model/objects.ts";
import { makeEndpointRecord, makeService, makeSlice } from "../../../model/testing/records.ts";

/** A ClusterIP service `ns/<name>` with one port, `p`, 80. */
export function serviceRecord(name: string, changes: Partial<ServiceRecord> = {}): ServiceRecord {
  return makeService({ namespace: "ns", name, clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1"], ...changes });
}

/** A ready endpoint on another node. */
export function endpointRecord(address: string, changes: Partial<EndpointRecord> = {}): EndpointRecord {
  return makeEndpointRecord(address, { nodeName: "other", ...changes });
}

/** The slice `ns/<service>-1` with port `p`, 8080, and one endpoint for each address. */
export function sliceRecord(
  service: string,
  addresses: readonly string[],
  changes: Partial<EndpointSliceRecord> = {},
): EndpointSliceRecord {
  return makeSlice({
    namespace: "ns",
    name: `${service}-1`,
    serviceName: service,
    ports: [{ name: "p", protocol: "TCP", port: 8080 }],
    endpoints: addresses.map((address) => endpointRecord(address)),
    resourceVersion: addresses.join(","),
    ...changes,
  });
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
