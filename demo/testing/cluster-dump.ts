/**
 * The output of `kubectl get services,endpointslices,nodes -A -o yaml` for a small real cluster (kubeadm, three nodes,
 * overlay network), with everything that the examples lack: an API server and exporters on the host network, managed
 * fields, nulls, pods with the same name in two namespaces, and more services than people write by hand.
 */
import { stringify } from "yaml";

const NODES = [
  { name: "cp-1", address: "172.18.0.3", podCIDR: "10.244.0.0/24", isControlPlane: true },
  { name: "worker-1", address: "172.18.0.2", podCIDR: "10.244.1.0/24", isControlPlane: false },
  { name: "worker-2", address: "172.18.0.4", podCIDR: "10.244.2.0/24", isControlPlane: false },
] as const;

const common = (namespace: string | undefined, name: string, labels: object = {}) => ({
  name,
  ...(namespace === undefined ? {} : { namespace }),
  labels,
  creationTimestamp: "2026-01-02T03:04:05Z",
  resourceVersion: "12345",
  uid: `00000000-0000-4000-8000-${name.length.toString().padStart(12, "0")}`,
  managedFields: [
    {
      apiVersion: "v1",
      fieldsType: "FieldsV1",
      fieldsV1: { "f:spec": { "f:ports": { ".": {} } } },
      manager: "kubectl",
    },
  ],
});

interface Port {
  readonly name?: string;
  readonly port: number;
  readonly targetPort: number;
  readonly protocol?: string;
  readonly nodePort?: number;
}

interface ServiceInput {
  readonly namespace: string;
  readonly name: string;
  readonly clusterIP: string;
  readonly ports: readonly Port[];
  readonly spec?: object;
  readonly status?: object;
}

const service = ({ namespace, name, clusterIP, ports, spec = {}, status = {} }: ServiceInput) => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { ...common(namespace, name), annotations: { "meta.helm.sh/release-name": name } },
  spec: {
    clusterIP,
    clusterIPs: [clusterIP],
    internalTrafficPolicy: "Cluster",
    ipFamilies: ["IPv4"],
    ipFamilyPolicy: "SingleStack",
    ports: ports.map((port) => ({ protocol: "TCP", ...port })),
    sessionAffinity: "None",
    type: "ClusterIP",
    ...spec,
  },
  status: { loadBalancer: {}, ...status },
});

interface Pod {
  readonly address: string;
  readonly nodeName?: string;
  readonly pod?: string;
  readonly isReady?: boolean;
}

const slice = (namespace: string, serviceName: string, ports: readonly Port[] | null, pods: readonly Pod[]) => ({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: {
    ...common(namespace, `${serviceName}-x7f2k`, {
      "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
      "kubernetes.io/service-name": serviceName,
    }),
    generateName: `${serviceName}-`,
  },
  addressType: "IPv4",
  ports: ports?.map(({ name = "", targetPort, protocol = "TCP" }) => ({ name, port: targetPort, protocol })) ?? null,
  endpoints: pods.map(({ address, nodeName, pod, isReady = true }) => ({
    addresses: [address],
    conditions: { ready: isReady, serving: isReady, terminating: false },
    ...(nodeName === undefined ? {} : { nodeName }),
    ...(pod === undefined ? {} : { targetRef: { kind: "Pod", name: pod, namespace, uid: "1-2-3" } }),
  })),
});

const HTTP: readonly Port[] = [{ name: "http", port: 80, targetPort: 8080 }];
const DNS: readonly Port[] = [
  { name: "dns", port: 53, targetPort: 53, protocol: "UDP" },
  { name: "dns-tcp", port: 53, targetPort: 53 },
];
const API: readonly Port[] = [{ name: "https", port: 443, targetPort: 6443 }];
const METRICS: readonly Port[] = [{ name: "metrics", port: 9100, targetPort: 9100 }];

/** @param many number of further services, with a pod on each worker. */
export function clusterDump(many = 30): string {
  const items = [
    service({ namespace: "default", name: "kubernetes", clusterIP: "10.96.0.1", ports: API }),
    slice("default", "kubernetes", API, [{ address: "172.18.0.3" }]),
    service({ namespace: "kube-system", name: "kube-dns", clusterIP: "10.96.0.10", ports: DNS }),
    slice("kube-system", "kube-dns", DNS, [
      { address: "10.244.0.2", nodeName: "cp-1", pod: "coredns-1" },
      { address: "10.244.1.3", nodeName: "worker-1", pod: "coredns-2" },
    ]),
    // On the host network: one of the endpoints is the node itself.
    service({ namespace: "monitoring", name: "node-exporter", clusterIP: "10.96.0.20", ports: METRICS }),
    slice(
      "monitoring",
      "node-exporter",
      METRICS,
      NODES.map(({ name, address }) => ({ address, nodeName: name, pod: `node-exporter-${name}` })),
    ),
    ...["blue", "green"].flatMap((namespace, index) => [
      service({ namespace, name: "web", clusterIP: `10.96.1.${index + 1}`, ports: HTTP }),
      slice(namespace, "web", HTTP, [
        { address: `10.244.1.${20 + index}`, nodeName: "worker-1", pod: "web-0" },
        { address: `10.244.2.${20 + index}`, nodeName: "worker-2", pod: "web-1" },
      ]),
    ]),
    service({
      namespace: "ingress",
      name: "ingress",
      clusterIP: "10.96.0.30",
      ports: [{ name: "http", port: 80, targetPort: 8080, nodePort: 31080 }],
      spec: { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 32080 },
      status: { loadBalancer: { ingress: [{ ip: "203.0.113.7", ipMode: "VIP" }] } },
    }),
    slice("ingress", "ingress", HTTP, [
      { address: "10.244.1.40", nodeName: "worker-1", pod: "ingress-a" },
      { address: "10.244.2.40", nodeName: "worker-2", pod: "ingress-b" },
    ]),
    service({ namespace: "blue", name: "db", clusterIP: "None", ports: HTTP, spec: { clusterIPs: ["None"] } }),
    slice("blue", "db", null, []),
    ...Array.from({ length: many }, (_, index) => [
      service({ namespace: "apps", name: `app-${index}`, clusterIP: `10.96.2.${index + 1}`, ports: HTTP }),
      slice("apps", `app-${index}`, HTTP, [
        { address: `10.244.1.${100 + index}`, nodeName: "worker-1", pod: `app-${index}-a` },
        { address: `10.244.2.${100 + index}`, nodeName: "worker-2", pod: `app-${index}-b` },
      ]),
    ]).flat(),
    ...NODES.map(({ name, address, podCIDR, isControlPlane }) => ({
      apiVersion: "v1",
      kind: "Node",
      metadata: {
        ...common(undefined, name, {
          "kubernetes.io/hostname": name,
          "topology.kubernetes.io/zone": "zone-a",
          ...(isControlPlane ? { "node-role.kubernetes.io/control-plane": "" } : {}),
        }),
      },
      spec: {
        ...{ podCIDR, podCIDRs: [podCIDR], providerID: `kind://docker/kind/${name}` },
        ...(isControlPlane && { taints: [{ key: "node-role.kubernetes.io/control-plane", effect: "NoSchedule" }] }),
      },
      status: {
        addresses: [
          { type: "InternalIP", address },
          { type: "Hostname", address: name },
        ],
        conditions: [{ type: "Ready", status: "True", lastHeartbeatTime: "2026-01-02T03:04:05Z" }],
      },
    })),
  ];
  return stringify({ apiVersion: "v1", items, kind: "List", metadata: { resourceVersion: "" } });
}
