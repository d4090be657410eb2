/**
 * The slim, frozen records of Kubernetes objects that the rest of the program uses. A source projects API JSON or
 * manifests to these while decoding, applies defaults and checks names; nothing keeps the raw objects.
 *
 * Endpoint addresses are canonical values. Service addresses are still text as in the API, in any accepted form, which
 * the model parses per family.
 */

import type { Hashing } from "../net/balancing.ts";
import { flatText } from "../net/compact.ts";
import type { EndTcp } from "../net/flow.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";
import type { ManifestProblem } from "./manifest-problem.ts";

/** The identity of a namespaced record. The source has checked that `name` and `namespace` are valid DNS names. */
interface ObjectKey {
  readonly namespace: string;
  readonly name: string;
}

/** One entry of `spec.ports[]` of a Service. */
export interface ServicePortSpec {
  /** Empty if the port is unnamed. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1–65535. */
  readonly port: number;
  /** 0 if there is none. */
  readonly nodePort: number;
}

/** One `status.loadBalancer.ingress[]` entry that has an IP. */
export interface LoadBalancerIngress {
  readonly ip: string;
  readonly ipMode: "VIP" | "Proxy";
}

/** The fields of a core/v1 Service that the proxy needs. */
export interface ServiceRecord extends ObjectKey {
  /** Empty in most manifests. */
  readonly uid: string;
  readonly type: "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName" | "";
  /** Empty if not allocated; `None` if headless. */
  readonly clusterIP: string;
  readonly clusterIPs: readonly string[];
  readonly ipFamilies: readonly IpFamily[];
  readonly ports: readonly ServicePortSpec[];
  readonly externalIPs: readonly string[];
  readonly loadBalancerSourceRanges: readonly string[];
  readonly loadBalancerIngress: readonly LoadBalancerIngress[];
  readonly sessionAffinity: "None" | "ClientIP";
  /** Seconds; 0 unless sessionAffinity is ClientIP. */
  readonly sessionAffinityTimeoutSeconds: number;
  readonly internalTrafficPolicy: "Cluster" | "Local";
  readonly externalTrafficPolicy: "Cluster" | "Local";
  /** 0 if there is none. */
  readonly healthCheckNodePort: number;
  /** Annotation `preserve-destination` is `true`, for Windows only; absent otherwise (reference windows.md §2.1). */
  readonly preservesDestination?: true;
  /** Annotation `kube-proxy-ts/end-tcp`, if valid. */
  readonly endTCP?: EndTcp;
  /** Annotation `kube-proxy-ts/balancing`, or Cilium's, if it names a hash. Session affinity wins over it. */
  readonly balancing?: Hashing;
  /** Annotation `kube-proxy-ts/leave-unanswered`, if valid. */
  readonly leaveUnanswered?: boolean;
}

/** One entry of `ports[]` of an EndpointSlice. */
export interface EndpointSlicePort {
  /** Empty if the port is unnamed. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1–65535; `null` if absent, which the API allows but a proxy cannot use. */
  readonly port: number | null;
}

/** One entry of `endpoints[]`, after the API's nil rules for conditions. */
export interface EndpointRecord {
  /** The first of `addresses[]`, the only one used, in the slice's family (reference endpoints.md §5.2). */
  readonly address: IpAddress;
  /** Empty if unknown. */
  readonly nodeName: string;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** `undefined` if there are no hints of this kind. */
  readonly zoneHints: readonly string[] | undefined;
  readonly nodeHints: readonly string[] | undefined;
  /** `namespace/name` of its pod (`targetRef`). Only for commands that read pods: the daemon does not keep it. */
  readonly pod?: string;
  /** Its addresses after the first, which no proxy uses. Only for such commands, too. */
  readonly unused?: readonly string[];
  /** Where it is, which no proxy uses. Only for such commands, too. */
  readonly zone?: string;
}

/** The fields of a discovery.k8s.io/v1 EndpointSlice that the proxy needs. */
export interface EndpointSliceRecord extends ObjectKey {
  /** Label `kubernetes.io/service-name`; empty if absent. */
  readonly serviceName: string;
  readonly addressType: "IPv4" | "IPv6" | "FQDN";
  readonly ports: readonly EndpointSlicePort[];
  readonly endpoints: readonly EndpointRecord[];
  /** Annotation `endpoints.kubernetes.io/last-change-trigger-time`, verbatim; empty if absent. */
  readonly lastChangeTriggerTime: string;
  /** Annotation `kube-proxy-ts/weight`, or Cilium's: 0 to 65535; absent if unset or invalid. */
  readonly weight?: number;
  /** Opaque; changes with any part of the object (a content digest for manifests). */
  readonly resourceVersion: string;
  /** The mirrored Endpoints object was truncated at its capacity (reference endpoints.md §5.2). Only for `explain`. */
  readonly isCutShort?: true;
  /** Of a slice without a Service's name: the value of another controller's label for it. Only for commands. */
  readonly meantFor?: string;
}

/** One `status.addresses[]` entry of a Node. */
export interface NodeAddress {
  readonly type: string;
  readonly address: string;
}

/** The fields of a core/v1 Node that the proxy needs. */
export interface NodeRecord {
  readonly name: string;
  readonly uid: string;
  /** Label `topology.kubernetes.io/zone`; `undefined` if absent. */
  readonly zone: string | undefined;
  readonly addresses: readonly NodeAddress[];
  readonly podCIDRs: readonly string[];
  readonly taintKeys: readonly string[];
  readonly isBeingDeleted: boolean;
}

/** The fields of a core/v1 Pod that `trace` and `explain` need. The daemon does not read pods. */
export interface PodRecord extends ObjectKey {
  /** Empty if it is not scheduled yet. */
  readonly nodeName: string;
  /** Addresses of both families; the node's addresses if the pod uses the host network. */
  readonly addresses: readonly IpAddress[];
}

/** Further fields of a core/v1 Service that `explain` shows. The daemon does not keep them. */
export interface ServiceNotes extends ObjectKey {
  /** `clusterIP: None`: the watch excludes it. */
  readonly isHeadless: boolean;
  /** Label `service.kubernetes.io/service-proxy-name`: another proxy serves it. `undefined` if absent. */
  readonly proxyName: string | undefined;
  /** `app=web,tier=front`; empty if it has none. */
  readonly selector: string;
  /** Host names of load balancer ingresses. */
  readonly hostNames: readonly string[];
}

/** The fields of a networking.k8s.io/v1 ServiceCIDR that the proxy needs. */
export interface ServiceCidrRecord {
  readonly name: string;
  readonly cidrs: readonly string[];
}

/** `namespace/name`, the key of services everywhere. */
export function objectKeyText(key: ObjectKey): string {
  return flatText(key.namespace, "/", key.name);
}

/** The key of a record within its kind: `namespace/name`, or the name. */
export function recordKey(record: ObjectKey | Pick<ObjectKey, "name">): string {
  return "namespace" in record ? objectKeyText(record) : record.name;
}

/** Whether two endpoints are equal in every field; hints compare as ordered lists. */
export function equalEndpointRecords(a: EndpointRecord, b: EndpointRecord): boolean {
  return (
    a === b ||
    (a.address === b.address &&
      a.nodeName === b.nodeName &&
      a.ready === b.ready &&
      a.serving === b.serving &&
      a.terminating === b.terminating &&
      a.pod === b.pod &&
      a.zone === b.zone &&
      a.unused?.join() === b.unused?.join() &&
      equalLists(a.zoneHints, b.zoneHints) &&
      equalLists(a.nodeHints, b.nodeHints))
  );
}

/** Whether both lists hold the same elements (`===`) in the same order, or there are none. */
export function equalLists(a: readonly unknown[] | undefined, b: readonly unknown[] | undefined): boolean {
  if (a === b || a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((item, index) => item === b[index]);
}

/** The records of a cluster, in manifest order. */
export interface ClusterRecords {
  readonly services: readonly ServiceRecord[];
  readonly endpointSlices: readonly EndpointSliceRecord[];
  readonly nodes: readonly NodeRecord[];
  readonly serviceCIDRs: readonly ServiceCidrRecord[];
  readonly problems: readonly ManifestProblem[];
  /** Missing unless requested. */
  readonly pods?: readonly PodRecord[];
  /** Notes on every Service, including those that are not watched; missing unless requested. */
  readonly serviceNotes?: readonly ServiceNotes[];
  /** The endpoints that the daemon of one node leaves out, as `ProxyState.leaveOut` takes them. @default not known */
  readonly leftOut?:
    | { readonly node: string; readonly ports: ReadonlyMap<string, ReadonlyMap<string, string>> }
    | undefined;
}
