/**
 * The cluster of cluster.ts as the API server sends it: with owners, references to pods and managed fields, which a
 * client has to skip.
 */
import type { ApiObject } from "../test/apiserver/object-store.ts";
import { benchService, benchSlice } from "./cluster.ts";

const CREATED = "2026-01-02T03:04:05Z";

/** The API server's record of who wrote what; a quarter of the bytes sent. */
function managedFields(manager: string, apiVersion: string, fields: Readonly<Record<string, unknown>>) {
  return [{ manager, operation: "Update", apiVersion, time: CREATED, fieldsType: "FieldsV1", fieldsV1: fields }];
}

/** Service number `index`, from 0. */
export function apiService(index: number): ApiObject {
  const { namespace, name, type, clusterIP, clusterIPs, ipFamilies, ports, sessionAffinity } = benchService(index);
  return {
    metadata: {
      namespace,
      name,
      creationTimestamp: CREATED,
      labels: { app: name, "app.kubernetes.io/managed-by": "Helm" },
      managedFields: managedFields("helm", "v1", {
        "f:metadata": { "f:labels": { ".": {}, "f:app": {}, "f:app.kubernetes.io/managed-by": {} } },
        "f:spec": {
          "f:internalTrafficPolicy": {},
          "f:ports": { ".": {}, 'k:{"port":80,"protocol":"TCP"}': { ".": {}, "f:name": {}, "f:port": {} } },
          "f:selector": {},
          "f:sessionAffinity": {},
          "f:type": {},
        },
      }),
    },
    spec: {
      ports: ports.map(({ name: portName, protocol, port }) => ({ name: portName, protocol, port, targetPort: 8080 })),
      selector: { app: name },
      clusterIP,
      clusterIPs,
      type,
      sessionAffinity,
      ipFamilies,
      ipFamilyPolicy: "SingleStack",
      internalTrafficPolicy: "Cluster",
    },
    status: { loadBalancer: {} },
  };
}

/**
 * The one slice of service number `index`.
 *
 * @param generation see `benchSlice`. @param nowMs for the trigger time. @param addresses of its endpoints. @default those of `benchSlice`
 */
export function apiSlice(
  index: number,
  endpointsEach: number,
  generation: number,
  nowMs: number,
  addresses?: readonly string[],
): ApiObject {
  const slice = benchSlice(index, endpointsEach, generation);
  const { namespace, name, serviceName, addressType, ports, endpoints } = slice;
  return {
    metadata: {
      namespace,
      name,
      generateName: `${serviceName}-`,
      generation: generation + 1,
      creationTimestamp: CREATED,
      labels: {
        app: serviceName,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "kubernetes.io/service-name": serviceName,
      },
      annotations: { "endpoints.kubernetes.io/last-change-trigger-time": new Date(nowMs).toISOString() },
      ownerReferences: [
        {
          apiVersion: "v1",
          kind: "Service",
          name: serviceName,
          uid: uid(index),
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
      managedFields: managedFields("kube-controller-manager", "discovery.k8s.io/v1", {
        "f:addressType": {},
        "f:endpoints": {},
        "f:metadata": {
          "f:annotations": { ".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {} },
          "f:generateName": {},
          "f:labels": { ".": {}, "f:app": {}, "f:endpointslice.kubernetes.io/managed-by": {} },
          "f:ownerReferences": { ".": {}, [`k:{"uid":"${uid(index)}"}`]: {} },
        },
        "f:ports": {},
      }),
    },
    addressType,
    endpoints: (addresses ?? endpoints.map(({ address }) => address)).map((address, at) => ({
      addresses: [address],
      conditions: { ready: true, serving: true, terminating: false },
      targetRef: { kind: "Pod", namespace, name: `${serviceName}-7d4b9c6f5-${at}`, uid: uid(index * 16 + at) },
      nodeName: `worker-${(index + at) % 500}`,
      zone: `zone-${(index + at) % 3}`,
    })),
    ports,
  };
}

function uid(number: number): string {
  return `8f14e45f-ceea-467f-a8e5-${number.toString(16).padStart(12, "0")}`;
}
