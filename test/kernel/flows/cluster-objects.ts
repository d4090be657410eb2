/** Kubernetes objects of the flow tests: services whose addresses follow from one number, and their endpoint slices. */

import type { Protocol } from "../../../src/net/protocol.ts";
import { hasSctp } from "../../../testkit/net/sctp/sctp-socket.ts";
import type { PodSpec } from "../../../testkit/net/topology-spec.ts";
import { nodeA, nodeB } from "../../../testkit/net/topology-spec.ts";

export const FAMILIES = ["IPv4", "IPv6"] as const;
export type Family = (typeof FAMILIES)[number];
/** The protocols for which this kernel has sockets; that of the virtual machine has SCTP. */
export const PROTOCOLS: readonly Protocol[] = hasSctp() ? ["TCP", "UDP", "SCTP"] : ["TCP", "UDP"];

/** The port of every service, for all protocols. */
export const SERVICE_PORT = 80;
/** Where every pod serves; different per protocol, so that a mix-up shows. */
export const TARGET_PORTS = { TCP: 8080, UDP: 5353, SCTP: 3868 } as const;

/** The serving pods: two on the node under test, one elsewhere. */
export const servingPods = {
  "local-1": { name: "local-1", node: nodeA.name, ipv4: "10.180.0.11", ipv6: "fd00:10:180::11" },
  "local-2": { name: "local-2", node: nodeA.name, ipv4: "10.180.0.12", ipv6: "fd00:10:180::12" },
  "remote-1": { name: "remote-1", node: nodeB.name, ipv4: "10.180.1.11", ipv6: "fd00:10:180:0:1::11" },
} as const satisfies Record<string, PodSpec>;
export type ServingPod = keyof typeof servingPods;

const ZONES = { [nodeA.name]: "zone-1", [nodeB.name]: "zone-2" };

/** The two nodes, as the topology has them. */
export const nodeObjects = [nodeA, nodeB].map(({ name, lan }) => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name, labels: { "topology.kubernetes.io/zone": ZONES[name] } },
  status: {
    addresses: [lan.ipv4, lan.ipv6].map((address) => ({ type: "InternalIP", address: address.split("/")[0] })),
  },
}));

/** Addresses of the service with this number, 1 to 99. */
export function addressesOf(number: number) {
  return {
    "cluster IP": { IPv4: `10.96.1.${number}`, IPv6: `fd00:10:96::1:${number}` },
    "external IP": { IPv4: `198.51.100.${number}`, IPv6: `2001:db8:51::${number}` },
    "load balancer": { IPv4: `203.0.113.${number}`, IPv6: `2001:db8:203::${number}` },
    nodePort: 30000 + number,
    healthCheckNodePort: 32000 + number,
  };
}

/** An endpoint: a pod, with what its slice says besides its address. */
export interface EndpointSpec {
  readonly pod: ServingPod;
  readonly conditions?: Readonly<Record<"ready" | "serving" | "terminating", boolean>>;
  readonly hints?: unknown;
}

export interface ServiceSpec {
  readonly name: string;
  readonly number: number;
  readonly endpoints: readonly (ServingPod | EndpointSpec)[];
  /** Merged into the spec. */
  readonly spec?: Readonly<Record<string, unknown>>;
}

export const TERMINATING = { ready: false, serving: true, terminating: true } as const;
export const UNREADY = { ready: false, serving: false, terminating: false } as const;

/** A load-balancer service with every kind of address in both families, every protocol, and its slices. */
export function serviceObjects({ name, number, endpoints, spec }: ServiceSpec): unknown[] {
  const addresses = addressesOf(number);
  const ports = PROTOCOLS.map((protocol) => ({
    name: protocol.toLowerCase(),
    protocol,
    port: SERVICE_PORT,
    targetPort: TARGET_PORTS[protocol],
    nodePort: addresses.nodePort,
  }));
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: "flows" },
    spec: {
      type: "LoadBalancer",
      clusterIP: addresses["cluster IP"].IPv4,
      clusterIPs: [addresses["cluster IP"].IPv4, addresses["cluster IP"].IPv6],
      ipFamilies: FAMILIES,
      externalIPs: [addresses["external IP"].IPv4, addresses["external IP"].IPv6],
      ports,
      ...spec,
    },
    status: {
      loadBalancer: {
        ingress: [{ ip: addresses["load balancer"].IPv4 }, { ip: addresses["load balancer"].IPv6 }],
      },
    },
  };
  return [service, ...FAMILIES.map((family) => sliceOf(name, family, endpoints))];
}

function sliceOf(service: string, family: Family, endpoints: ServiceSpec["endpoints"]): unknown {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${service}-${family.toLowerCase()}`,
      namespace: "flows",
      labels: { "kubernetes.io/service-name": service },
    },
    addressType: family,
    ports: PROTOCOLS.map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: TARGET_PORTS[protocol] })),
    endpoints: endpoints.map((entry) => {
      const { pod, ...rest } = typeof entry === "string" ? { pod: entry } : entry;
      const { name, node, ipv4, ipv6 } = servingPods[pod];
      return {
        addresses: [family === "IPv4" ? ipv4 : ipv6],
        nodeName: node,
        targetRef: { kind: "Pod", name, namespace: "flows" },
        conditions: { ready: true },
        ...rest,
      };
    }),
  };
}

/** The nodes and these services. */
export function clusterOf(services: readonly ServiceSpec[]): unknown[] {
  return [...nodeObjects, ...services.flatMap(serviceObjects)];
}
