/** The objects as manifests that every command reads with -f, with only the fields that a proxy needs. */
import {
  type EndpointSliceRecord,
  type NodeRecord,
  objectKeyText,
  type ServiceNotes,
  type ServiceRecord,
} from "../../model/objects.ts";
import { PROXY_NAME_LABEL } from "../../model/projection/service.ts";
import type { Objects } from "./part-of-cluster.ts";

/** A `List` of all objects. */
export function objectsList(objects: Objects): unknown {
  const { services, endpointSlices, nodes, serviceCIDRs, serviceNotes = [] } = objects;
  const unserved = new Map(serviceNotes.map((notes) => [objectKeyText(notes), notes]));
  const served = services.map((service) => {
    const key = objectKeyText(service);
    const notes = unserved.get(key);
    unserved.delete(key);
    return serviceManifest(service, notes);
  });
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
      ...served,
      ...Array.from(unserved.values(), unservedManifest),
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

export function serviceManifest(service: ServiceRecord, notes?: ServiceNotes): unknown {
  const { namespace, name, uid, type, ports, preservesDestination, endTCP, balancing, leaveUnanswered, ...others } =
    service;
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
        ...(balancing !== undefined && { "kube-proxy-ts/balancing": balancing }),
        ...(leaveUnanswered !== undefined && { "kube-proxy-ts/leave-unanswered": String(leaveUnanswered) }),
      },
    },
    spec: {
      ...spec,
      ...selectorOf(notes),
      ...(type !== "" && { type }),
      ports: ports.map(({ nodePort, ...port }) => ({ ...port, ...(nodePort !== 0 && { nodePort }) })),
      ...(spec.sessionAffinity === "ClientIP" && {
        sessionAffinityConfig: { clientIP: { timeoutSeconds: sessionAffinityTimeoutSeconds } },
      }),
    },
    status: { loadBalancer: { ingress: [...loadBalancerIngress, ...namesOf(notes)] } },
  };
}

/** A Service that the proxy ignores, and the reason. */
function unservedManifest(notes: ServiceNotes): unknown {
  const { namespace, name, isHeadless, proxyName } = notes;
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace, name, ...(proxyName !== undefined && { labels: { [PROXY_NAME_LABEL]: proxyName } }) },
    spec: { ...(isHeadless && { clusterIP: "None" }), ...selectorOf(notes) },
    status: { loadBalancer: { ingress: namesOf(notes) } },
  };
}

function selectorOf({ selector }: Partial<ServiceNotes> = {}): object {
  return selector ? { selector: Object.fromEntries(selector.split(",").map((pair) => pair.split("="))) } : {};
}

function namesOf({ hostNames = [] }: Partial<ServiceNotes> = {}): readonly unknown[] {
  return hostNames.map((hostname) => ({ hostname }));
}

export function sliceManifest(slice: EndpointSliceRecord): unknown {
  const { namespace, name, serviceName, addressType, ports, endpoints, isCutShort, weight } = slice;
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      namespace,
      name,
      ...(serviceName !== "" && { labels: { "kubernetes.io/service-name": serviceName } }),
      annotations: {
        ...(isCutShort === true && { "endpoints.kubernetes.io/over-capacity": "truncated" }),
        ...(weight !== undefined && { "kube-proxy-ts/weight": `${weight}` }),
      },
    },
    addressType,
    ports: ports.map(({ port, ...own }) => ({ ...own, ...(port !== null && { port }) })),
    endpoints: endpoints.map(({ address, nodeName, ready, serving, terminating, zoneHints, nodeHints, pod, zone }) => ({
      addresses: [address],
      ...(nodeName !== "" && { nodeName }),
      ...(zone !== undefined && { zone }),
      conditions: { ready, serving, terminating },
      ...(pod !== undefined && { targetRef: { kind: "Pod", namespace: pod.split("/")[0], name: pod.split("/")[1] } }),
      ...((zoneHints !== undefined || nodeHints !== undefined) && {
        hints: {
          ...(zoneHints !== undefined && { forZones: zoneHints.map((zone) => ({ name: zone })) }),
          ...(nodeHints !== undefined && { forNodes: nodeHints.map((node) => ({ name: node })) }),
        },
      }),
    })),
  };
}
