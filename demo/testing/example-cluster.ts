/** Builds the demo's view of a small cluster for tests: one service, its endpoints, two nodes. */
import { type ClusterView, clusterViewOf, type DemoObject, parseDemoObject } from "../cluster-view.ts";

export interface ExampleEndpoint {
  readonly pod: string;
  readonly address: string;
  readonly nodeName: string;
  readonly conditions?: object;
  readonly hints?: object;
}

export const localPod: ExampleEndpoint = { pod: "here", address: "10.180.0.11", nodeName: "node-a" };
export const remotePod: ExampleEndpoint = { pod: "there", address: "10.180.1.11", nodeName: "node-b" };

/** Parses or throws: for documents that the test means to be good. */
export function demoObject(document: object): DemoObject {
  const parsed = parseDemoObject(document);
  if (parsed?.ok !== true) throw new TypeError(parsed?.problem ?? "not a kind that the demo knows");
  return parsed.object;
}

/** Service `shop/web` with port http 80 → 8080 and these endpoints. @param spec merged over the service's spec. */
export function exampleCluster(spec: object, endpoints: readonly ExampleEndpoint[], status: object = {}): ClusterView {
  const ports = [{ name: "http", port: 80, nodePort: 30080 }];
  const node = (name: string, zone: string, address: string) => ({
    kind: "Node",
    metadata: { name, labels: { "topology.kubernetes.io/zone": zone } },
    status: { addresses: [{ type: "InternalIP", address }] },
  });
  const metadata = { name: "web", namespace: "shop" };
  const documents = [
    node("node-a", "zone-1", "10.200.0.2"),
    node("node-b", "zone-2", "10.200.0.3"),
    { kind: "Service", metadata, spec: { type: "NodePort", clusterIP: "10.96.0.10", ports, ...spec }, status },
    {
      kind: "EndpointSlice",
      metadata: { name: "web-1", namespace: "shop", labels: { "kubernetes.io/service-name": "web" } },
      addressType: "IPv4",
      ports: [{ name: "http", port: 8080 }],
      endpoints: endpoints.map(({ pod, address, ...rest }) => ({
        ...rest,
        addresses: [address],
        targetRef: { name: pod },
      })),
    },
  ];
  return clusterViewOf(documents.map(demoObject));
}
