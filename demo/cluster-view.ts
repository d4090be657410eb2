/**
 * What the demo knows of the manifests. Deliberately read apart from the proxy's own source and model, with a schema of
 * its own: what the demo expects must not inherit their mistakes.
 */
import * as v from "valibot";
import { type IpAddress, type IpFamily, parseIpAddress } from "../src/net/ip.ts";

const meta = v.object({
  name: v.string(),
  namespace: v.optional(v.string(), "default"),
  labels: v.optional(v.record(v.string(), v.string()), {}),
});
const portNumber = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(65535));
/** 0: none. */
const nodePortNumber = v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(65535)), 0);
const protocol = v.optional(v.picklist(["TCP", "UDP", "SCTP"]), "TCP");
const policy = v.optional(v.picklist(["Cluster", "Local"]), "Cluster");
const texts = v.optional(v.array(v.string()), []);
const ip = v.pipe(
  v.string(),
  v.check((text) => parseIpAddress(text) !== undefined, "not an IP address"),
  v.transform((text) => parseIpAddress(text) ?? ("" as IpAddress)),
);
const flag = v.nullish(v.boolean());

const serviceSchema = v.object({
  kind: v.literal("Service"),
  metadata: meta,
  spec: v.object({
    type: v.optional(v.picklist(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]), "ClusterIP"),
    clusterIP: v.optional(v.string(), ""),
    clusterIPs: texts,
    externalIPs: v.optional(v.array(ip), []),
    loadBalancerSourceRanges: texts,
    sessionAffinity: v.optional(v.picklist(["None", "ClientIP"]), "None"),
    internalTrafficPolicy: policy,
    externalTrafficPolicy: policy,
    ports: v.optional(
      v.array(v.object({ name: v.optional(v.string(), ""), protocol, port: portNumber, nodePort: nodePortNumber })),
      [],
    ),
  }),
  status: v.optional(
    v.object({
      loadBalancer: v.optional(
        v.object({
          ingress: v.optional(v.array(v.object({ ip: v.optional(ip), ipMode: v.optional(v.string(), "VIP") })), []),
        }),
      ),
    }),
  ),
});

const hints = (key: "forZones" | "forNodes") => ({ [key]: v.optional(v.array(v.object({ name: v.string() })), []) });

const sliceSchema = v.object({
  kind: v.literal("EndpointSlice"),
  metadata: meta,
  addressType: v.picklist(["IPv4", "IPv6", "FQDN"]),
  // The API server writes null where there is none.
  ports: v.nullish(v.array(v.object({ name: v.nullish(v.string(), ""), protocol, port: v.nullish(portNumber) })), []),
  endpoints: v.nullish(
    v.array(
      v.object({
        addresses: v.pipe(v.array(v.string()), v.minLength(1)),
        nodeName: v.optional(v.string(), ""),
        conditions: v.optional(v.object({ ready: flag, serving: flag, terminating: flag }), {}),
        hints: v.optional(v.object({ ...hints("forZones"), ...hints("forNodes") })),
        targetRef: v.optional(v.object({ name: v.optional(v.string()), namespace: v.optional(v.string()) })),
      }),
    ),
    [],
  ),
});

const nodeSchema = v.object({
  kind: v.literal("Node"),
  metadata: meta,
  status: v.optional(
    v.object({ addresses: v.nullish(v.array(v.object({ type: v.string(), address: v.string() })), []) }),
    {},
  ),
});
const objectSchema = v.variant("kind", [serviceSchema, sliceSchema, nodeSchema]);

export type DemoObject = v.InferOutput<typeof objectSchema>;
type ServiceObject = v.InferOutput<typeof serviceSchema>;
type SliceObject = v.InferOutput<typeof sliceSchema>;

export interface DemoServicePort {
  readonly name: string;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly port: number;
  /** 0 when there is none. */
  readonly nodePort: number;
}

export interface DemoService {
  /** `namespace/name`. */
  readonly key: string;
  readonly type: ServiceObject["spec"]["type"];
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
  /** The pod's name, or its address where the slice names none. */
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
  /** What it was made of. */
  readonly objects: readonly DemoObject[];
  /** Those that a proxy serves, by key. */
  readonly services: readonly DemoService[];
  /** Endpoints of a service port in one family; empty when there are none. */
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
  /** Its internal addresses. */
  readonly addresses: readonly IpAddress[];
}

export interface DemoSocket {
  readonly pod: string;
  readonly address: IpAddress;
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly port: number;
  /** Empty when the slice names none. */
  readonly nodeName: string;
}

export type ParsedObject =
  | { readonly ok: true; readonly object: DemoObject }
  | { readonly ok: false; readonly problem: string };

/** Checks one manifest document. @returns `undefined` for kinds that the demo does not look at. */
export function parseDemoObject(document: unknown): ParsedObject | undefined {
  const kind = v.safeParse(v.object({ kind: v.picklist(["Service", "EndpointSlice", "Node"]) }), document);
  if (!kind.success) return undefined;
  const parsed = v.safeParse(objectSchema, document);
  if (parsed.success) return { ok: true, object: parsed.output };
  const [issue] = parsed.issues;
  const field = v.getDotPath(issue)?.replace(/\.(\d+)/g, "[$1]") ?? "";
  return { ok: false, problem: `${kind.output.kind}: ${field}: ${issue.message}` };
}

/** `kind namespace/name`. Pure. */
export function demoObjectKey(object: DemoObject): string {
  return `${object.kind} ${object.metadata.namespace}/${object.metadata.name}`;
}

const isDefined = <T>(value: T | undefined): value is T => value !== undefined;

function toService({ metadata, spec, status }: ServiceObject): DemoService | undefined {
  const isForAnotherProxy = "service.kubernetes.io/service-proxy-name" in metadata.labels;
  const listed = spec.clusterIPs.length > 0 ? spec.clusterIPs : [spec.clusterIP];
  const clusterIPs = listed.map(parseIpAddress).filter(isDefined);
  if (isForAnotherProxy || spec.type === "ExternalName" || spec.clusterIP === "None" || clusterIPs.length === 0) {
    return undefined;
  }
  const ingress = status?.loadBalancer?.ingress ?? [];
  return {
    key: `${metadata.namespace}/${metadata.name}`,
    type: spec.type,
    clusterIPs,
    externalIPs: spec.externalIPs,
    loadBalancerIPs: ingress.flatMap(({ ip: address, ipMode }) => (ipMode === "VIP" ? (address ?? []) : [])),
    sourceRanges: spec.loadBalancerSourceRanges,
    isSticky: spec.sessionAffinity === "ClientIP",
    internalLocal: spec.internalTrafficPolicy === "Local",
    externalLocal: spec.externalTrafficPolicy === "Local",
    ports: spec.ports,
  };
}

type SliceEndpoint = NonNullable<SliceObject["endpoints"]>[number];

function endpointOf(endpoint: SliceEndpoint, pod: string, address: IpAddress, port: number): DemoEndpoint {
  const isReady = endpoint.conditions.ready ?? true;
  const isServing = endpoint.conditions.serving ?? isReady;
  return {
    pod,
    address,
    port,
    nodeName: endpoint.nodeName,
    isReady,
    isServingTerminating: isServing && endpoint.conditions.terminating === true,
    zoneHints: endpoint.hints?.forZones?.map(({ name }) => name) ?? [],
    nodeHints: endpoint.hints?.forNodes?.map(({ name }) => name) ?? [],
  };
}

/**
 * A name for each socket, by `address port`: its pod's, with the namespace where pods of several namespaces share it. Those
 * that no slice names a pod for have none. On the hosts' network pods share addresses.
 */
function podNames(slices: readonly SliceObject[]): ReadonlyMap<string, string> {
  const pods = new Map<string, { readonly name: string; readonly namespace: string }>();
  for (const { endpoints, ports } of slices) {
    for (const { addresses, targetRef } of endpoints ?? []) {
      if (targetRef?.name === undefined) continue;
      const pod = { name: targetRef.name, namespace: targetRef.namespace ?? "" };
      for (const { port } of ports ?? [])
        pods.set(`${addresses[0]} ${port}`, pods.get(`${addresses[0]} ${port}`) ?? pod);
    }
  }
  const byName = Map.groupBy(pods.values(), ({ name }) => name);
  const isShared = (name: string) => new Set(byName.get(name)?.map(({ namespace }) => namespace)).size > 1;
  return new Map(
    [...pods].map(([socket, { name, namespace }]) => [socket, isShared(name) ? `${name}.${namespace}` : name]),
  );
}

function nodesOf(objects: readonly DemoObject[]): DemoNode[] {
  return objects.flatMap((object) => {
    if (object.kind !== "Node") return [];
    const { metadata, status } = object;
    const internal = (status.addresses ?? []).filter(({ type }) => type === "InternalIP");
    return [
      {
        name: metadata.name,
        isControlPlane: "node-role.kubernetes.io/control-plane" in metadata.labels,
        addresses: internal.map(({ address }) => parseIpAddress(address)).filter(isDefined),
      },
    ];
  });
}

/** Joins the objects of a folder. Pure. */
export function clusterViewOf(objects: Iterable<DemoObject>): ClusterView {
  const all = [...objects];
  const services = all.flatMap((object) => (object.kind === "Service" ? (toService(object) ?? []) : []));
  const slices = all
    .filter((object) => object.kind === "EndpointSlice")
    .filter(({ addressType }) => addressType !== "FQDN");
  const names = podNames(slices);
  const endpoints = new Map<string, Map<string, DemoEndpoint>>();
  const sockets = new Map<string, DemoSocket>();
  for (const slice of slices) {
    if ("service.kubernetes.io/headless" in slice.metadata.labels) continue;
    const service = `${slice.metadata.namespace}/${slice.metadata.labels["kubernetes.io/service-name"] ?? ""}`;
    for (const port of slice.ports ?? []) {
      const number = port.port;
      // A slice without a port number is for consumers that know one; a proxy has nothing to do with it.
      if (number === undefined || number === null) continue;
      const key = `${service} ${port.name ?? ""} ${port.protocol} ${slice.addressType}`;
      const known = endpoints.get(key) ?? new Map<string, DemoEndpoint>();
      endpoints.set(key, known);
      for (const item of slice.endpoints ?? []) {
        const text = item.addresses[0] ?? "";
        const address = parseIpAddress(text);
        if (address === undefined) continue;
        const endpoint = endpointOf(item, names.get(`${text} ${number}`) ?? address, address, number);
        known.set(`${address} ${number}`, endpoint);
        sockets.set(`${port.protocol} ${address} ${number}`, { ...endpoint, protocol: port.protocol });
      }
    }
  }
  return {
    objects: all,
    services: services.sort((a, b) => (a.key < b.key ? -1 : 1)),
    endpointsOf: (service, port, family) => [
      ...(endpoints.get(`${service.key} ${port.name} ${port.protocol} ${family}`)?.values() ?? []),
    ],
    sockets: [...sockets.values()],
    nodes: nodesOf(all),
    zones: new Map(
      all.flatMap((object) => {
        const zone = object.kind === "Node" ? object.metadata.labels["topology.kubernetes.io/zone"] : undefined;
        return zone === undefined ? [] : [[object.metadata.name, zone] as const];
      }),
    ),
  };
}
