/** Ordinary objects for the test API server. */
import type { ApiObject } from "./object-store.ts";

/** A ClusterIP Service `default/svc-N`. */
export function service(index: number, spec: Readonly<Record<string, unknown>> = {}): ApiObject {
  const clusterIP = `10.96.${(index >> 8) & 255}.${index & 255}`;
  return {
    metadata: { namespace: "default", name: `svc-${index}` },
    spec: {
      type: "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: ["IPv4"],
      ipFamilyPolicy: "SingleStack",
      sessionAffinity: "None",
      internalTrafficPolicy: "Cluster",
      ports: [{ name: "http", protocol: "TCP", port: 80, targetPort: 8080 }],
      ...spec,
    },
    status: { loadBalancer: {} },
  };
}

/** The slice of {@link service}, with ready endpoints. */
export function slice(index: number, endpointCount = 1, generation = 0): ApiObject {
  const endpoints = Array.from({ length: endpointCount }, (_, at) => ({
    addresses: [`10.${128 + (generation & 63)}.${index & 255}.${at + 1}`],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: `node-${at}`,
    targetRef: { kind: "Pod", namespace: "default", name: `pod-${index}-${at}`, uid: `pod-uid-${index}-${at}` },
  }));
  return {
    metadata: {
      namespace: "default",
      name: `svc-${index}-abcde`,
      labels: { "kubernetes.io/service-name": `svc-${index}` },
    },
    addressType: "IPv4",
    endpoints,
    ports: [{ name: "http", protocol: "TCP", port: 8080 }],
  };
}

/** A Node with an address. */
export function node(name: string, address = "192.0.2.10"): ApiObject {
  return {
    metadata: { name, labels: { "topology.kubernetes.io/zone": "zone-a" } },
    spec: { podCIDR: "10.244.0.0/24", podCIDRs: ["10.244.0.0/24"] },
    status: {
      addresses: [
        { type: "InternalIP", address },
        { type: "Hostname", address: name },
      ],
    },
  };
}

/** The cluster's ServiceCIDR. */
export function serviceCidr(): ApiObject {
  return { metadata: { name: "kubernetes" }, spec: { cidrs: ["10.96.0.0/12"] } };
}
