/** Random states for tests of `prove`. */
import type { ClusterRecords } from "../../src/model/objects.ts";
import { ip } from "../../src/model/testing/records.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { sampledCluster } from "./sampled-cluster.ts";

export const PLACES = {
  IPv4: { node: ip("10.200.0.2"), podCIDR: "10.180.0.0/16", serviceCIDR: "10.96.0.0/16" },
  IPv6: { node: ip("fd00:200::2"), podCIDR: "fd00:180::/32", serviceCIDR: "fd00:96::/64" },
} as const;

/** Each tells a node's own pods in another way. */
export function settingsFor(family: IpFamily, seed: number): object {
  const clusterCIDR = PLACES[family].podCIDR;
  const kinds: readonly object[] = [
    {},
    { detectLocalMode: "ClusterCIDR", clusterCIDR },
    { detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "cbr0" } },
    { detectLocalMode: "InterfaceNamePrefix", detectLocal: { interfaceNamePrefix: "veth" } },
    { detectLocalMode: "ClusterCIDR", clusterCIDR, nodePortAddresses: ["10.200.0.0/24", "fd00:200::/64"] },
    {
      detectLocalMode: "ClusterCIDR",
      clusterCIDR,
      iptables: { masqueradeAll: true },
      nftables: { masqueradeAll: true },
    },
  ];
  const named = { detectLocalMode: "ClusterCIDR", clusterCIDR, nodePortAddresses: ["primary", "localhost"] };
  const loopback: readonly object[] = [
    { ...named, featureGates: { KubeProxyNFTablesLocalhostNodePorts: true } },
    { ...named, nodePortAddresses: [], featureGates: { KubeProxyNFTablesLocalhostNodePorts: true } },
  ];
  if (seed % 5 === 0) return { ...loopback[(seed / 5) % loopback.length], compatibility: "v1.37" };
  return { ...kinds[seed % kinds.length], compatibility: seed % 4 === 0 ? "v1.36" : "v1.37" };
}

export function clusterFor(family: IpFamily, seed: number) {
  const sampled = sampledCluster(family, seed, PLACES[family]);
  const cluster = seed % 3 === 0 ? withOwnEndpoints(sampled, family) : sampled;
  const cidrs = [PLACES[family].serviceCIDR];
  return seed % 2 === 0 ? cluster : { ...cluster, serviceCIDRs: [{ name: "kubernetes", cidrs }] };
}

const MOVED = ["10.180.0.1", "fd00:180::1"];

/** The same, with an endpoint at the node's own address, and with a port of Services that is a number of a node port. */
function withOwnEndpoints(cluster: ClusterRecords, family: IpFamily): ClusterRecords {
  const own = PLACES[family].node;
  return {
    ...cluster,
    services: cluster.services.map((service) => ({
      ...service,
      ports: service.ports.map((one) => (one.port === 53 ? { ...one, port: 30_080 } : one)),
    })),
    endpointSlices: cluster.endpointSlices.map((slice) => ({
      ...slice,
      endpoints: slice.endpoints.map((one) => (MOVED.includes(one.address) ? { ...one, address: own } : one)),
    })),
  };
}
