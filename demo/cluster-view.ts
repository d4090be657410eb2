/** The demo's view of the manifests: services, their endpoints, and the sockets that must answer. */
import type { ClusterRecords } from "../src/model/objects.ts";
import {
  type EndpointRecord,
  type EndpointSliceRecord,
  type NodeRecord,
  objectKeyText,
  type ServicePortSpec,
  type ServiceRecord,
} from "../src/model/objects.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../src/net/ip.ts";

export type DemoServicePort = ServicePortSpec;

export interface DemoService {
  /** `namespace/name`. */
  readonly key: string;
  readonly type: ServiceRecord["type"];
  readonly clusterIPs: readonly IpAddress[];
  readonly externalIPs: readonly IpAddress[];
  readonly loadBalancerIPs: readonly IpAddress[];
  readonly sourceRanges: readonly string[];
  readonly isSticky: boolean;
  readonly internalLocal: boolean;
  readonly externalLocal: boolean;
  readonly ports: readonly DemoServicePort[];
}

export interface DemoEndpoint {
  /** The pod's name, or its address if the slice names none. */
  readonly pod: string;
  readonly address: IpAddress;
  readonly port: number;
  readonly nodeName: string;
  readonly isReady: boolean;
  readonly isServingTerminating: boolean;
  readonly zoneHints: readonly string[];
  readonly nodeHints: readonly string[];
}

export interface ClusterView {
  /** The objects it was made from. */
  readonly cluster: ClusterRecords;
  /** The services that a proxy serves, sorted by key. */
  readonly services: readonly DemoService[];
  /** Endpoints of a service port in one family. */
  endpointsOf(service: DemoService, port: DemoServicePort, family: IpFamily): readonly DemoEndpoint[];
  /** Every pod address that any slice names, with the sockets it must serve. */
  readonly sockets: readonly DemoSocket[];
  /** Zone label by node name. */
  readonly zones: ReadonlyMap<string, string>;
  readonly nodes: readonly DemoNode[];
}

export interface DemoNode {
  readonly name: string;
  readonly isControlPlane: boolean;
  /** Its `InternalIP` addresses. */
  readonly addresses: readonly IpAddress[];
}

export interface DemoSocket {
  readonly pod: string;
  readonly address: IpAddress;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly port: number;
  /** Empty if the slice names none. */
  readonly nodeName: string;
}

const isDefined = <T>(value: T | undefined): value is T => value !== undefined;

function toService(record: ServiceRecord): DemoService | undefined {
  const listed = record.clusterIPs.length > 0 ? record.clusterIPs : [record.clusterIP];
  const clusterIPs = listed.map(parseIpAddress).filter(isDefined);
  if (record.type === "ExternalName" || clusterIPs.length === 0) return undefined;
  const ingress = record.loadBalancerIngress.filter(({ ipMode }) => ipMode === "VIP");
  return {
    key: objectKeyText(record),
    type: record.type,
    clusterIPs,
    externalIPs: record.externalIPs.map(parseIpAddress).filter(isDefined),
    loadBalancerIPs: ingress.map(({ ip }) => parseIpAddress(ip)).filter(isDefined),
    sourceRanges: record.loadBalancerSourceRanges,
    isSticky: record.sessionAffinity === "ClientIP",
    internalLocal: record.internalTrafficPolicy === "Local",
    externalLocal: record.externalTrafficPolicy === "Local",
    ports: record.ports,
  };
}

function endpointOf(endpoint: EndpointRecord, pod: string, port: number): DemoEndpoint {
  return {
    pod,
    address: endpoint.address,
    port,
    nodeName: endpoint.nodeName,
    isReady: endpoint.ready,
    isServingTerminating: endpoint.serving && endpoint.terminating,
    zoneHints: endpoint.zoneHints ?? [],
    nodeHints: endpoint.nodeHints ?? [],
  };
}

/**
 * The pod's name for each socket, by `address port`; with its namespace if pods of several namespaces have the same name. Sockets
 * without a pod in any slice have none. On the host network, pods share addresses.
 */
function podNames(slices: readonly EndpointSliceRecord[]): ReadonlyMap<string, string> {
  const pods = new Map<string, { readonly name: string; readonly namespace: string }>();
  // A pod has one namespace, even if slices of several namespaces name it.
  const namespaces = new Map<string, string>();
  for (const { endpoints, ports } of slices) {
    for (const { address, pod } of endpoints) {
      const [own = "", name] = pod?.split("/") ?? [];
      if (name === undefined) continue;
      const namespace = namespaces.get(`${address} ${name}`) ?? own;
      namespaces.set(`${address} ${name}`, namespace);
      for (const { port } of ports) {
        const socket = `${address} ${port}`;
        if (!pods.has(socket)) pods.set(socket, { name, namespace });
      }
    }
  }
  const byName = Map.groupBy(pods.values(), ({ name }) => name);
  const isShared = (name: string) => new Set(byName.get(name)?.map(({ namespace }) => namespace)).size > 1;
  return new Map(
    [...pods].map(([socket, { name, namespace }]) => [socket, isShared(name) ? `${name}.${namespace}` : name]),
  );
}

function nodeOf({ name, taintKeys, addresses }: NodeRecord): DemoNode {
  const internal = addresses.filter(({ type }) => type === "InternalIP");
  return {
    name,
    isControlPlane: taintKeys.includes("node-role.kubernetes.io/control-plane"),
    addresses: internal.map(({ address }) => parseIpAddress(address)).filter(isDefined),
  };
}

/** @param cluster must include pod names. */
export function clusterViewOf(cluster: ClusterRecords): ClusterView {
  const services = cluster.services.flatMap((record) => toService(record) ?? []);
  const slices = cluster.endpointSlices.filter(({ addressType }) => addressType !== "FQDN");
  const names = podNames(slices);
  const endpoints = new Map<string, Map<string, DemoEndpoint>>();
  const sockets = new Map<string, DemoSocket>();
  for (const slice of slices) {
    for (const { name, protocol, port } of slice.ports) {
      // A slice without a port number is for consumers that know one, which a proxy does not.
      if (port === null) continue;
      const key = `${slice.namespace}/${slice.serviceName} ${name} ${protocol} ${slice.addressType}`;
      const known = endpoints.get(key) ?? new Map<string, DemoEndpoint>();
      endpoints.set(key, known);
      for (const item of slice.endpoints) {
        const place = `${item.address} ${port}`;
        const endpoint = endpointOf(item, names.get(place) ?? item.address, port);
        known.set(place, endpoint);
        sockets.set(`${protocol} ${place}`, { ...endpoint, protocol });
      }
    }
  }
  return {
    cluster,
    services: services.sort((a, b) => (a.key < b.key ? -1 : 1)),
    endpointsOf: (service, port, family) => [
      ...(endpoints.get(`${service.key} ${port.name} ${port.protocol} ${family}`)?.values() ?? []),
    ],
    sockets: [...sockets.values()],
    nodes: cluster.nodes.map(nodeOf),
    zones: new Map(cluster.nodes.flatMap(({ name, zone }) => (zone === undefined ? [] : [[name, zone] as const]))),
  };
}
