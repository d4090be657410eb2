/** The demo's view of a small cluster for tests: one service, its endpoints, two nodes. */

import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { formatManifestProblem } from "../../src/model/manifest-problem.ts";
import { type ClusterView, clusterViewOf } from "../cluster-view.ts";

export interface ExampleEndpoint {
  readonly pod: string;
  readonly address: string;
  readonly nodeName: string;
  readonly conditions?: object;
  readonly hints?: object;
}

export const localPod: ExampleEndpoint = { pod: "here", address: "10.180.0.11", nodeName: "node-a" };
export const remotePod: ExampleEndpoint = { pod: "there", address: "10.180.1.11", nodeName: "node-b" };

/** The view of these objects. @throws TypeError if one is invalid. */
export function viewOf(...documents: readonly object[]): ClusterView {
  const versioned = documents.map((document) => ({
    apiVersion: "kind" in document && document.kind === "EndpointSlice" ? "discovery.k8s.io/v1" : "v1",
    ...document,
  }));
  const cluster = projectObjects(versioned, "example", { keepsPods: true });
  const [problem] = cluster.problems;
  if (problem !== undefined) throw new TypeError(formatManifestProblem(problem));
  return clusterViewOf(cluster);
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
        targetRef: { kind: "Pod", name: pod },
      })),
    },
  ];
  return viewOf(...documents);
}
