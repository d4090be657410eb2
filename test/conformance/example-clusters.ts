/** The two worked examples of reference iptables-examples.md §16 and §17, as model values. */
import assert from "node:assert/strict";
import type { Endpoint } from "../../src/model/endpoint.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import { servicePortName } from "../../src/model/service-port-name.ts";
import { ip, makeEndpoint, makeServicePort } from "../../src/model/testing/records.ts";
import type { PlanConfig, PlanFacts } from "../../src/modes/iptables/plan-options.ts";
import { type Cidr, parseCidr } from "../../src/net/ip.ts";
import type { Protocol } from "../../src/net/protocol.ts";

export { ip };

export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  assert.ok(parsed, text);
  return parsed;
}

interface PortFields {
  readonly namespace: string;
  readonly service: string;
  readonly portName?: string;
  readonly protocol?: Protocol;
  readonly clusterIP: string;
  readonly port: number;
}

/** A plain cluster-IP port; `more` overrides. */
export function servicePort(fields: PortFields, more: Partial<ServicePort> = {}): ServicePort {
  const { namespace, service, portName = "", protocol = "TCP", clusterIP, port } = fields;
  const name = servicePortName(namespace, service, portName, protocol);
  return makeServicePort({ name, clusterIP: ip(clusterIP), port, protocol, ...more });
}

/** A ready endpoint; `more` overrides. */
export const endpoint = makeEndpoint;

export interface ExampleCluster {
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
  readonly ports: readonly (readonly [ServicePort, readonly Endpoint[]])[];
}

/** §16: IPv4, ClusterCIDR detector, node port on all addresses, no counters. */
export const ipv4Example: ExampleCluster = {
  config: {
    family: "IPv4",
    nodeName: "n1",
    nodeIP: ip("192.168.0.2"),
    masqueradeMark: 1 << 14,
    hashSeed: 1,
    masqueradeAll: false,
    detector: { kind: "cidr", cidr: cidr("10.244.0.0/16") },
    localhostNodePorts: true,
    conntrackLiberal: false,
  },
  facts: {
    zone: undefined,
    nodePortIPs: { kind: "all" },
    counters: { ctStateInvalid: false, localhostNodePorts: false },
    isLargeCluster: false,
  },
  ports: [
    [
      servicePort({
        namespace: "default",
        service: "kubernetes",
        portName: "https",
        clusterIP: "10.96.0.1",
        port: 443,
      }),
      [endpoint("192.168.0.10", 6443)],
    ],
    [
      servicePort({
        namespace: "kube-system",
        service: "kube-dns",
        portName: "dns",
        protocol: "UDP",
        clusterIP: "10.96.0.10",
        port: 53,
      }),
      [endpoint("10.244.1.2", 53, { isLocal: true }), endpoint("10.244.2.3", 53)],
    ],
    [
      servicePort(
        { namespace: "shop", service: "cache", clusterIP: "10.96.77.1", port: 6379 },
        { internalPolicyLocal: true },
      ),
      [endpoint("10.244.2.9", 6379)],
    ],
    [servicePort({ namespace: "shop", service: "idle", portName: "http", clusterIP: "10.96.77.2", port: 80 }), []],
    [
      servicePort(
        { namespace: "shop", service: "web", portName: "http", clusterIP: "10.96.77.3", port: 80 },
        {
          nodePort: 30080,
          healthCheckNodePort: 31234,
          externalPolicyLocal: true,
          isExternallyAccessible: true,
          externalIPs: [ip("198.51.100.7")],
          loadBalancerVIPs: [ip("203.0.113.10")],
          loadBalancerSourceRanges: [cidr("192.168.0.0/24"), cidr("198.18.0.0/15")],
          sessionAffinity: "ClientIP",
          stickyMaxAgeSeconds: 10800,
        },
      ),
      [endpoint("10.244.1.20", 8080, { isLocal: true }), endpoint("10.244.2.20", 8080)],
    ],
  ],
};

/** §17.1: IPv6, bridge detector, listed node-port addresses, liberal conntrack. */
export const ipv6Example: ExampleCluster = {
  config: {
    family: "IPv6",
    nodeName: "n1",
    nodeIP: ip("2001:db8:1::5"),
    masqueradeMark: 1 << 14,
    hashSeed: 1,
    masqueradeAll: false,
    detector: { kind: "interface", name: "cni0" },
    localhostNodePorts: false,
    conntrackLiberal: true,
  },
  facts: {
    zone: undefined,
    nodePortIPs: { kind: "ips", ips: [ip("2001:db8:1::5")] },
    counters: { ctStateInvalid: false, localhostNodePorts: false },
    isLargeCluster: false,
  },
  ports: [
    [
      servicePort(
        { namespace: "apps", service: "api", portName: "http", clusterIP: "fd00:10:96::1:20", port: 80 },
        { nodePort: 31080, loadBalancerVIPs: [ip("2001:db8:ffff::10")], isExternallyAccessible: true },
      ),
      [endpoint("fd00:10:244:1::5", 8080), endpoint("fd00:10:244:2::7", 8080), endpoint("fd00:10:244:3::9", 8080)],
    ],
    [
      servicePort({ namespace: "apps", service: "db", clusterIP: "fd00:10:96::1:21", port: 5432 }),
      [endpoint("fd00:10:244:1::6", 5432)],
    ],
  ],
};
