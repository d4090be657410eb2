/** One random Service of two nodes, with everything that decides what its clients meet. */
import fc from "../../testkit/support/fast-check.ts";

const policy = fc.constantFrom("Cluster", "Local");
const endpointArbitrary = fc.record({
  node: fc.constantFrom("node-a", "node-b"),
  state: fc.constantFrom("ready", "ready", "terminating", "gone", "not ready"),
  zone: fc.constantFrom(undefined, "zone-1", "zone-2"),
  forNode: fc.constantFrom(undefined, "node-a", "node-b"),
});

/** @param ranges of which some are the load balancer's source ranges. */
export const oneService = (ranges: readonly string[]) =>
  fc.record({
    externalTrafficPolicy: policy,
    internalTrafficPolicy: policy,
    type: fc.constantFrom("ClusterIP", "NodePort", "LoadBalancer"),
    isSticky: fc.boolean(),
    externalIP: fc.boolean(),
    ranges: fc.subarray([...ranges]),
    endpoints: fc.array(endpointArbitrary, { maxLength: 4 }),
  });
export type OneService = ReturnType<typeof oneService> extends fc.Arbitrary<infer T> ? T : never;

const CONDITIONS = {
  ready: { ready: true },
  terminating: { ready: false, serving: true, terminating: true },
  gone: { ready: false, serving: false, terminating: true },
  "not ready": { ready: false },
} as const;

/** Service, slice and nodes as manifests: `shop/web` at 10.96.0.10:80, seen from node-a. */
export function serviceCluster(one: OneService): object[] {
  const node = (name: string, zone: string, address: string, podCIDR: string) => ({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { "topology.kubernetes.io/zone": zone } },
    spec: { podCIDR, podCIDRs: [podCIDR] },
    status: { addresses: [{ type: "InternalIP", address }] },
  });
  const isBalanced = one.type === "LoadBalancer";
  return [
    node("node-a", "zone-1", "10.200.0.2", "10.180.0.0/24"),
    node("node-b", "zone-2", "10.200.0.3", "10.180.1.0/24"),
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "shop", name: "web" },
      spec: {
        type: one.type,
        clusterIP: "10.96.0.10",
        clusterIPs: ["10.96.0.10"],
        ipFamilies: ["IPv4"],
        ports: [{ name: "http", port: 80, ...(one.type !== "ClusterIP" && { nodePort: 30080 }) }],
        internalTrafficPolicy: one.internalTrafficPolicy,
        ...(one.type !== "ClusterIP" && { externalTrafficPolicy: one.externalTrafficPolicy }),
        ...(one.isSticky && { sessionAffinity: "ClientIP" }),
        ...(one.externalIP && { externalIPs: ["198.51.100.7"] }),
        ...(isBalanced && { loadBalancerSourceRanges: one.ranges, healthCheckNodePort: 31000 }),
      },
      status: isBalanced ? { loadBalancer: { ingress: [{ ip: "203.0.113.7" }] } } : {},
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
      addressType: "IPv4",
      ports: [{ name: "http", port: 8080 }],
      endpoints: one.endpoints.map(({ node: nodeName, state, zone, forNode }, index) => ({
        addresses: [`10.180.${nodeName === "node-a" ? 0 : 1}.${11 + index}`],
        nodeName,
        conditions: CONDITIONS[state],
        targetRef: { kind: "Pod", name: `pod-${index}` },
        hints: {
          ...(zone !== undefined && { forZones: [{ name: zone }] }),
          ...(forNode !== undefined && { forNodes: [{ name: forNode }] }),
        },
      })),
    },
  ];
}
