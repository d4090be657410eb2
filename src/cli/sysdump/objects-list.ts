/** The objects as manifests that every command reads with -f. They have what a proxy needs of them and nothing else. Pure. */
import type { EndpointSliceRecord, NodeRecord, ServiceCidrRecord, ServiceRecord } from "../../cluster/objects.ts";

interface ListedObjects {
  readonly services: readonly ServiceRecord[];
  readonly endpointSlices: readonly EndpointSliceRecord[];
  readonly nodes: readonly NodeRecord[];
  readonly serviceCIDRs: readonly ServiceCidrRecord[];
}

/** A `List` of all. */
export function objectsList({ services, endpointSlices, nodes, serviceCIDRs }: ListedObjects): unknown {
  return {
    apiVersion: "v1",
    kind: "List",
    items: [
      ...nodes.map(nodeManifest),
      ...serviceCIDRs.map(({ name, cidrs }) => ({
        apiVersion: "networking.k8s.io/v1",
        kind: "ServiceCIDR",
        metadata: { name },
        spec: { cidrs },
      })),
      ...services.map(serviceManifest),
      ...endpointSlices.map(sliceManifest),
    ],
  };
}

function nodeManifest({ name, uid, zone, addresses, podCIDRs, taintKeys, isBeingDeleted }: NodeRecord): unknown {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      ...(uid !== "" && { uid }),
      ...(zone !== undefined && { labels: { "topology.kubernetes.io/zone": zone } }),
      ...(isBeingDeleted && { deletionTimestamp: new Date(0).toISOString() }),
    },
    spec: { podCIDRs, taints: taintKeys.map((key) => ({ key, effect: "NoSchedule" })) },
    status: { addresses },
  };
}

function serviceManifest(service: ServiceRecord): unknown {
  const { namespace, name, uid, type, ports, preservesDestination, endTCP, ...others } = service;
  const { loadBalancerIngress, sessionAffinityTimeoutSeconds, ...spec } = others;
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      namespace,
      name,
      ...(uid !== "" && { uid }),
      annotations: {
        ...(preservesDestination === true && { "preserve-destination": "true" }),
        ...(endTCP !== undefined && { "kube-proxy-ts/end-tcp": endTCP }),
      },
    },
    spec: {
      ...spec,
      ...(type !== "" && { type }),
      ports: ports.map(({ nodePort, ...port }) => ({ ...port, ...(nodePort !== 0 && { nodePort }) })),
      ...(spec.sessionAffinity === "ClientIP" && {
        sessionAffinityConfig: { clientIP: { timeoutSeconds: sessionAffinityTimeoutSeconds } },
      }),
    },
    status: { loadBalancer: { ingress: loadBalancerIngress } },
  };
}

function sliceManifest(slice: EndpointSliceRecord): unknown {
  const { namespace, name, serviceName, addressType, ports, endpoints, isCutShort } = slice;
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      namespace,
      name,
      ...(serviceName !== "" && { labels: { "kubernetes.io/service-name": serviceName } }),
      ...(isCutShort === true && { annotations: { "endpoints.kubernetes.io/over-capacity": "truncated" } }),
    },
    addressType,
    ports: ports.map(({ port, ...own }) => ({ ...own, ...(port !== null && { port }) })),
    endpoints: endpoints.map(({ address, nodeName, ready, serving, terminating, zoneHints, nodeHints, pod }) => ({
      addresses: [address],
      ...(nodeName !== "" && { nodeName }),
      conditions: { ready, serving, terminating },
      ...(pod !== undefined && { targetRef: podReference(pod) }),
      ...((zoneHints !== undefined || nodeHints !== undefined) && {
        hints: {
          ...(zoneHints !== undefined && { forZones: zoneHints.map((zone) => ({ name: zone })) }),
          ...(nodeHints !== undefined && { forNodes: nodeHints.map((node) => ({ name: node })) }),
        },
      }),
    })),
  };
}

function podReference(pod: string): unknown {
  const [namespace, name] = pod.split("/");
  return { kind: "Pod", namespace, name };
}
