/**
 * The slim, frozen records that the rest of the program knows of Kubernetes objects. A source projects API JSON or
 * manifests to these as it decodes them, defaults applied and names checked; nothing keeps the raw objects.
 *
 * Addresses of endpoints are canonical values; those of Services are still text (the API's own, sloppy forms included), which
 * the model parses per family.
 */
import { flatText } from "../net/flat-text.ts";
import type { EndTcp } from "../net/flow.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { Protocol } from "../net/protocol.ts";

/** The identity that every namespaced record has. `name` and `namespace` are valid DNS names (checked by the source). */
interface ObjectKey {
  readonly namespace: string;
  readonly name: string;
}

/** One entry of `spec.ports[]` of a Service. */
export interface ServicePortSpec {
  /** Empty when the port is unnamed. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1–65535. */
  readonly port: number;
  /** 0 when there is none. */
  readonly nodePort: number;
}

/** One `status.loadBalancer.ingress[]` entry that has an IP. */
export interface LoadBalancerIngress {
  readonly ip: string;
  readonly ipMode: "VIP" | "Proxy";
}

/** What the proxy needs of a core/v1 Service. */
export interface ServiceRecord extends ObjectKey {
  /** Empty in most manifests. */
  readonly uid: string;
  readonly type: "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName" | "";
  /** Empty when not allocated; `None` when headless. */
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
  /** 0 when there is none. */
  readonly healthCheckNodePort: number;
  /** Annotation `preserve-destination` is `true`; absent otherwise. */
  readonly preservesDestination?: true;
  /** Annotation `kube-proxy-ts/end-tcp`, where it says something. */
  readonly endTCP?: EndTcp;
}

/** One entry of `ports[]` of an EndpointSlice. */
export interface EndpointSlicePort {
  /** Empty when the port is unnamed. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1–65535; `null` when there is none, which the API allows and a proxy cannot use. */
  readonly port: number | null;
}

/** One entry of `endpoints[]`, with the API's nil rules for conditions already applied. */
export interface EndpointRecord {
  /** The first of `addresses[]`, which is the only one that is used; of the slice's family (reference endpoints.md §5.2). */
  readonly address: IpAddress;
  /** Empty when unknown. */
  readonly nodeName: string;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** `undefined` when there are no hints of this kind. */
  readonly zoneHints: readonly string[] | undefined;
  readonly nodeHints: readonly string[] | undefined;
  /** `namespace/name` of its pod (`targetRef`). Only for readers that ask for pods: the daemon does not keep it. */
  readonly pod?: string;
}

/** What the proxy needs of a discovery.k8s.io/v1 EndpointSlice. */
export interface EndpointSliceRecord extends ObjectKey {
  /** Label `kubernetes.io/service-name`; empty when absent. */
  readonly serviceName: string;
  readonly addressType: "IPv4" | "IPv6" | "FQDN";
  readonly ports: readonly EndpointSlicePort[];
  readonly endpoints: readonly EndpointRecord[];
  /** Annotation `endpoints.kubernetes.io/last-change-trigger-time`, verbatim; empty when absent. */
  readonly lastChangeTriggerTime: string;
  /** Opaque; differs whenever any part of the object differs (a content digest for manifests). */
  readonly resourceVersion: string;
  /** It mirrors an Endpoints object that was cut at its capacity (reference endpoints.md §5.2). Only for `explain`. */
  readonly isCutShort?: true;
}

/** One `status.addresses[]` entry of a Node. */
export interface NodeAddress {
  readonly type: string;
  readonly address: string;
}

/** What the proxy needs of a core/v1 Node. */
export interface NodeRecord {
  readonly name: string;
  readonly uid: string;
  /** Label `topology.kubernetes.io/zone`; `undefined` when the key is absent. */
  readonly zone: string | undefined;
  readonly addresses: readonly NodeAddress[];
  readonly podCIDRs: readonly string[];
  readonly taintKeys: readonly string[];
  readonly isBeingDeleted: boolean;
}

/** What `trace` and `explain` need of a core/v1 Pod. The daemon does not read pods. */
export interface PodRecord extends ObjectKey {
  /** Empty when it is not scheduled yet. */
  readonly nodeName: string;
  /** Addresses of both families; the node's own for a pod on its network. */
  readonly addresses: readonly IpAddress[];
}

/** What `explain` says of a core/v1 Service beside what is served. The daemon does not keep it. */
export interface ServiceNotes extends ObjectKey {
  /** `clusterIP: None`: the watch does not show it. */
  readonly isHeadless: boolean;
  /** Label `service.kubernetes.io/service-proxy-name`: another proxy serves it. `undefined` when the key is absent. */
  readonly proxyName: string | undefined;
  /** `app=web,tier=front`; empty when it has none. */
  readonly selector: string;
  /** Names of load balancers that have no address. */
  readonly hostNames: readonly string[];
}

/** What the proxy needs of a networking.k8s.io/v1 ServiceCIDR. */
export interface ServiceCidrRecord {
  readonly name: string;
  readonly cidrs: readonly string[];
}

/** `namespace/name`, the key of services everywhere. Pure. */
export function objectKeyText(key: ObjectKey): string {
  return flatText(key.namespace, "/", key.name);
}

/** What tells a record from others of its kind: `namespace/name`, or the name. Pure. */
export function recordKey(record: ObjectKey | Pick<ObjectKey, "name">): string {
  return "namespace" in record ? objectKeyText(record) : record.name;
}

/** Whether two endpoints are the same in every field; hints compare as ordered lists. Pure. */
export function equalEndpointRecords(a: EndpointRecord, b: EndpointRecord): boolean {
  return (
    a === b ||
    (a.address === b.address &&
      a.nodeName === b.nodeName &&
      a.ready === b.ready &&
      a.serving === b.serving &&
      a.terminating === b.terminating &&
      a.pod === b.pod &&
      equalHints(a.zoneHints, b.zoneHints) &&
      equalHints(a.nodeHints, b.nodeHints))
  );
}

export function equalHints(a: readonly string[] | undefined, b: readonly string[] | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((hint, index) => hint === b[index]);
}
