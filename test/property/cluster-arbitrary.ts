/**
 * Random clusters for property tests, with so few names and addresses that objects interact (two services with one
 * external IP, slices that precede their service, endpoints that move) far more often than in a real cluster.
 */

import type { EndpointRecord, EndpointSliceRecord, ServiceRecord } from "../../src/model/objects.ts";
import { makeEndpointRecord, makeService, makeSlice } from "../../src/model/testing/records.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import fc from "../../testkit/support/fast-check.ts";

export const NODE_NAME = "node-a";
export const ZONES = [undefined, "zone-1", "zone-2"] as const;

/** `ns1/a` and `ns1/ab` sort differently as names and as port keys; `ns2/a` has the same name as `ns1/a`. */
const SERVICES = [
  { namespace: "ns1", name: "a" },
  { namespace: "ns1", name: "ab" },
  { namespace: "ns1", name: "b" },
  { namespace: "ns2", name: "a" },
] as const;

interface FamilyAddresses {
  /** Two services may get the same one. */
  readonly clusterIPs: readonly string[];
  readonly externalIPs: readonly string[];
  readonly ingress: readonly string[];
  readonly ranges: readonly string[];
  readonly endpoints: readonly string[];
}

const ADDRESSES: Readonly<Record<IpFamily, FamilyAddresses>> = {
  IPv4: {
    clusterIPs: ["10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4", "10.96.0.5"],
    externalIPs: ["198.51.100.1", "198.51.100.2", "10.96.0.1", "fd00::1"],
    ingress: ["203.0.113.1", "203.0.113.2", "198.51.100.1"],
    ranges: ["192.168.0.0/24", "198.18.0.0/15", "0.0.0.0/0", "fd00::/8"],
    endpoints: ["10.180.0.1", "10.180.0.2", "10.180.0.10", "10.180.1.1", "10.180.1.2"],
  },
  IPv6: {
    clusterIPs: ["fd00:96::1", "fd00:96::2", "fd00:96::3", "fd00:96::4", "fd00:96::5"],
    externalIPs: ["2001:db8:1::1", "2001:db8:1::2", "fd00:96::1", "198.51.100.1"],
    ingress: ["2001:db8:2::1", "2001:db8:2::2", "2001:db8:1::1"],
    ranges: ["fd00:200::/64", "2001:db8::/32", "::/0", "10.0.0.0/8"],
    endpoints: ["fd00:180::1", "fd00:180::2", "fd00:180::10", "fd00:180:1::1", "fd00:180:1::2"],
  },
};

const servicePorts = fc.uniqueArray(
  fc.record({
    name: fc.constantFrom("", "p", "dns"),
    protocol: fc.constantFrom("TCP", "TCP", "UDP", "SCTP"),
    port: fc.constantFrom(53, 80),
    nodePort: fc.constantFrom(0, 0, 30080, 30081),
  }),
  { selector: ({ name, protocol }) => `${name}/${protocol}`, minLength: 1, maxLength: 3 },
);

function serviceArbitrary(family: IpFamily): fc.Arbitrary<ServiceRecord> {
  const { clusterIPs, externalIPs, ingress, ranges } = ADDRESSES[family];
  const policy = fc.constantFrom("Cluster", "Cluster", "Local");
  return fc
    .record({
      key: fc.constantFrom(...SERVICES),
      type: fc.constantFrom("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName"),
      clusterIP: fc.constantFrom(...clusterIPs, ...clusterIPs, "None"),
      ports: servicePorts,
      externalIPs: fc.subarray([...externalIPs], { maxLength: 2 }),
      loadBalancerIngress: fc.subarray([...ingress], { maxLength: 2 }),
      loadBalancerSourceRanges: fc.subarray([...ranges], { maxLength: 2 }),
      isProxied: fc.constantFrom(false, false, false, true),
      sessionAffinity: fc.constantFrom("None", "None", "ClientIP"),
      internalTrafficPolicy: policy,
      externalTrafficPolicy: policy,
      healthCheckNodePort: fc.constantFrom(0, 31000, 31001),
      balancing: fc.constantFrom(undefined, undefined, undefined, "SourceHash", "FlowHash"),
    })
    .map(({ key, clusterIP, loadBalancerIngress, isProxied, balancing, ...rest }) =>
      makeService({
        ...key,
        ...rest,
        ...(balancing !== undefined && { balancing }),
        clusterIP,
        clusterIPs: [clusterIP],
        ipFamilies: [family],
        loadBalancerIngress: loadBalancerIngress.map((ip) => ({ ip, ipMode: isProxied ? "Proxy" : "VIP" })),
        sessionAffinityTimeoutSeconds: rest.sessionAffinity === "ClientIP" ? 10_800 : 0,
      }),
    );
}

function endpointArbitrary(family: IpFamily): fc.Arbitrary<EndpointRecord> {
  return fc
    .record({
      address: fc.constantFrom(...ADDRESSES[family].endpoints),
      nodeName: fc.constantFrom("", NODE_NAME, "node-b"),
      state: fc.constantFrom("ready", "ready", "ready", "terminating", "gone", "starting"),
      zoneHints: fc.constantFrom(undefined, undefined, ["zone-1"], ["zone-1", "zone-2"]),
      nodeHints: fc.constantFrom(undefined, undefined, [NODE_NAME]),
    })
    .map(({ address, state, ...rest }) =>
      makeEndpointRecord(address, {
        ...rest,
        ready: state === "ready",
        serving: state === "ready" || state === "terminating",
        terminating: state === "terminating" || state === "gone",
      }),
    );
}

function sliceArbitrary(family: IpFamily): fc.Arbitrary<EndpointSliceRecord> {
  const port = fc.record({
    name: fc.constantFrom("", "p", "dns"),
    protocol: fc.constantFrom("TCP", "UDP", "SCTP"),
    port: fc.constantFrom(53, 8080, null),
  });
  return fc
    .record({
      index: fc.constantFrom(0, 1),
      // Most slices keep their service; some are relabelled, or have none.
      service: fc.constantFrom(...SERVICES),
      serviceName: fc.constantFrom(undefined, undefined, undefined, undefined, "b", "unknown"),
      ports: fc.uniqueArray(port, { selector: ({ name }) => name, maxLength: 3 }),
      endpoints: fc.array(endpointArbitrary(family), { maxLength: 4 }),
      weight: fc.constantFrom(undefined, undefined, undefined, undefined, 0, 1, 3, 100, 65_535),
    })
    .map(({ index, service, serviceName, weight, ...rest }) =>
      makeSlice({
        ...(weight !== undefined && { weight }),
        namespace: service.namespace,
        name: `${service.name}-${index}`,
        serviceName: serviceName ?? service.name,
        addressType: family,
        ...rest,
      }),
    );
}

/** One change of the cluster or the node. */
export type Step =
  | { readonly kind: "write-service"; readonly object: ServiceRecord }
  | { readonly kind: "delete-service"; readonly index: number }
  | { readonly kind: "write-slice"; readonly object: EndpointSliceRecord }
  | { readonly kind: "delete-slice"; readonly index: number }
  | { readonly kind: "zone"; readonly zone: string | undefined }
  /** The node's node-port addresses: an index into the test's own list. */
  | { readonly kind: "addresses"; readonly index: number }
  | { readonly kind: "sync"; readonly isFullSync: boolean };

/** Histories as lists of steps, with a sync every few steps. */
export function stepArbitrary(family: IpFamily): fc.Arbitrary<Step> {
  const index = fc.nat(10);
  return fc.oneof(
    { weight: 8, arbitrary: serviceArbitrary(family).map((object): Step => ({ kind: "write-service", object })) },
    { weight: 3, arbitrary: index.map((at): Step => ({ kind: "delete-service", index: at })) },
    { weight: 9, arbitrary: sliceArbitrary(family).map((object): Step => ({ kind: "write-slice", object })) },
    { weight: 3, arbitrary: index.map((at): Step => ({ kind: "delete-slice", index: at })) },
    { weight: 1, arbitrary: fc.constantFrom(...ZONES).map((zone): Step => ({ kind: "zone", zone })) },
    { weight: 1, arbitrary: fc.constantFrom(0, 1).map((at): Step => ({ kind: "addresses", index: at })) },
    {
      weight: 9,
      arbitrary: fc
        .constantFrom(false, false, false, false, true)
        .map((isFullSync): Step => ({ kind: "sync", isFullSync })),
    },
  );
}
