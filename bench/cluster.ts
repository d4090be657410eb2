/**
 * A made-up cluster: plain ClusterIP services with one TCP port each, the shape of upstream's own scale tests.
 * Everything is a function of the numbers, so two runs send the same text.
 */

import "../testkit/needs/kernel-tools.ts";
import { execFileSync } from "node:child_process";
import type { EndpointRecord, EndpointSliceRecord, ServiceRecord } from "../src/model/objects.ts";
import { type IpAddress, ipFromBytes } from "../src/net/ip.ts";

export const NODE_NAME = "bench-node";
const PORT_NAME = "http";
const SERVICE_NET = 10 * 2 ** 24 + 96 * 2 ** 16; // 10.96.0.0/12
const POD_NET = 10 * 2 ** 24 + 128 * 2 ** 16; // 10.128.0.0/10: initial endpoints
const LATER_POD_NET = 10 * 2 ** 24 + 192 * 2 ** 16; // 10.192.0.0/10: endpoints that replace others

function dotted(address: number): IpAddress {
  return ipFromBytes(Uint8Array.of(address >>> 24, address >>> 16, address >>> 8, address));
}

/** Service number `index`, from 0. */
export function benchService(index: number): ServiceRecord {
  const clusterIP = dotted(SERVICE_NET + index + 1);
  return {
    namespace: `team-${index % 97}`,
    name: `service-${index}`,
    uid: "",
    type: "ClusterIP",
    clusterIP,
    clusterIPs: [clusterIP],
    ipFamilies: ["IPv4"],
    ports: [{ name: PORT_NAME, protocol: "TCP", port: 80, nodePort: 0 }],
    externalIPs: [],
    loadBalancerSourceRanges: [],
    loadBalancerIngress: [],
    sessionAffinity: "None",
    sessionAffinityTimeoutSeconds: 0,
    internalTrafficPolicy: "Cluster",
    externalTrafficPolicy: "Cluster",
    healthCheckNodePort: 0,
  };
}

function benchEndpoint(address: IpAddress): EndpointRecord {
  return {
    address,
    nodeName: "another-node",
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: undefined,
    nodeHints: undefined,
  };
}

/**
 * The one slice of service number `index`.
 *
 * @param generation 0 for the initial endpoints; each later one has another first endpoint.
 */
export function benchSlice(index: number, endpointsEach: number, generation = 0): EndpointSliceRecord {
  const { namespace, name } = benchService(index);
  const endpoints: EndpointRecord[] = [];
  for (let at = 0; at < endpointsEach; at += 1) {
    const isReplaced = at === 0 && generation > 0;
    const number = isReplaced ? index * 16 + (generation % 16) : index * endpointsEach + at;
    endpoints.push(benchEndpoint(dotted((isReplaced ? LATER_POD_NET : POD_NET) + number + 1)));
  }
  return {
    namespace,
    name: `${name}-slice`,
    serviceName: name,
    addressType: "IPv4",
    ports: [{ name: PORT_NAME, protocol: "TCP", port: 8080 }],
    endpoints,
    lastChangeTriggerTime: "",
    resourceVersion: String(generation + 1),
  };
}

/**
 * The slice of service number `index` with the first endpoint of another generation. As in the daemon, unchanged parts
 * are shared.
 */
export function withReplacedEndpoint(
  slice: EndpointSliceRecord,
  index: number,
  generation: number,
): EndpointSliceRecord {
  const [, ...others] = slice.endpoints;
  const replacement = benchEndpoint(dotted(LATER_POD_NET + index * 16 + (generation % 16) + 1));
  return { ...slice, endpoints: [replacement, ...others], resourceVersion: String(generation + 1) };
}

/** All objects of a cluster of this many services, as readers of manifests give them; no Nodes. */
export function benchObjects(services: number, endpointsEach: number) {
  const indices = Array.from({ length: services }, (_, index) => index);
  return {
    services: indices.map(benchService),
    endpointSlices: indices.map((index) => benchSlice(index, endpointsEach)),
    nodes: [],
    serviceCIDRs: [],
  };
}

export const NODE_ADDRESS = "10.200.0.2";

/** All endpoints are local, and cluster IPs have a route, without which packets would not get as far as the rules. */
export function makeReachable(): void {
  const ip = (words: string): void => void execFileSync("ip", words.split(" "));
  ip(`address add ${NODE_ADDRESS}/32 dev lo`);
  ip(`route add local 10.128.0.0/9 dev lo src ${NODE_ADDRESS}`);
  ip(`route add 10.96.0.0/12 dev lo src ${NODE_ADDRESS}`);
}
