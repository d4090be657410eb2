/** The objects of bench/cluster.ts as a user writes them, for the measurement of first connections. Pure. */
import { benchService, benchSlice } from "./cluster.ts";

export interface ClusterSize {
  readonly services: number;
  readonly endpointsEach: number;
}

const NODE_NAME = "node-a";
const TARGET_PORT = 8080;

/** The Service with this number, and its slice with these addresses. */
export function serviceObjects(index: number, addresses: readonly string[]) {
  const { namespace, name, clusterIP, ports } = benchService(index);
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace, name },
    spec: {
      type: "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ports: ports.map(({ nodePort: _, ...port }) => port),
    },
  };
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace, name: `${name}-slice`, labels: { "kubernetes.io/service-name": name } },
    addressType: "IPv4",
    ports: ports.map((port) => ({ name: port.name, port: TARGET_PORT, protocol: port.protocol })),
    endpoints: addresses.map((address) => ({ addresses: [address], nodeName: "another-node", conditions: {} })),
  };
  return { service, slice };
}

/** Every service of the start. */
export function* clusterObjects({ services, endpointsEach }: ClusterSize) {
  for (let index = 0; index < services; index += 1) {
    const { endpoints } = benchSlice(index, endpointsEach);
    yield serviceObjects(
      index,
      endpoints.map(({ address }) => address),
    );
  }
}

export function nodeObject(address: string) {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: NODE_NAME },
    spec: { podCIDR: "10.180.0.0/24", podCIDRs: ["10.180.0.0/24"] },
    status: { addresses: [{ type: "InternalIP", address }] },
  };
}

/** What connection-api-process.ts says after the first sync, or instead of it. */
export type StartReport = { readonly firstSyncMs: number; readonly cpuMs: number } | { readonly failure: string };

/** What a program has needed since its start, tools included. */
export interface ProgramReport {
  readonly cpuMs: number;
  /** Duration of all syncs, as its own metrics have it. */
  readonly workMs: number;
  /** Megabytes. */
  readonly rssMb: number;
  readonly peakMb: number;
}
