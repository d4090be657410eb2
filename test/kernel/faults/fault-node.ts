/** A bare node for fault tests: one uplink, the real daemon with a short sync period, and small clusters as objects. */
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { type DaemonOptions, ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";

/** How often failures are retried and flushes are looked for. */
export const SYNC_PERIOD_MS = 1000;

export const nodeObject = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "zone-1" } },
  spec: { podCIDRs: ["10.180.0.0/24"] },
  status: { addresses: [{ type: "InternalIP", address: "10.200.0.2" }] },
};

/** A namespace with the node's address; removed with the test. */
export async function faultNode(t: { after(work: () => unknown): void }): Promise<NetworkNamespace> {
  const node = await NetworkNamespace.create(newRunName("fault"));
  t.after(() => node.remove());
  await node.configure([
    "link add eth0 type veth peer name eth0-peer",
    "link set eth0-peer up",
    "link set eth0 up",
    "addr add 10.200.0.2/24 dev eth0",
    "addr add fd00:200::2/64 dev eth0 nodad",
  ]);
  return node;
}

export type FaultOptions = Partial<Omit<DaemonOptions, "hostnameOverride">>;

/** The daemon's options: `node-a` and these objects, {@link SYNC_PERIOD_MS}, and the test's additions. */
export function daemonOptions({ config, objects = [], ...rest }: FaultOptions): DaemonOptions {
  return {
    hostnameOverride: "node-a",
    objects: [nodeObject, ...objects],
    config: { iptables: { syncPeriod: `${SYNC_PERIOD_MS}ms`, minSyncPeriod: "1ms" }, ...config },
    ...rest,
  };
}

/** Starts the daemon on a node and waits for its first sync; ends with the test. */
export async function startDaemon(
  t: Pick<TestContext, "after">,
  node: NetworkNamespace,
  options: FaultOptions = {},
): Promise<ProxyDaemon> {
  const daemon = prepareDaemon(t, node, options);
  daemon.spawn();
  await daemon.synced();
  return daemon;
}

/** The same without starting it: for tests that want to see the start fail. */
export function prepareDaemon(
  t: Pick<TestContext, "after">,
  node: NetworkNamespace,
  options: FaultOptions = {},
): ProxyDaemon {
  const daemon = ProxyDaemon.prepare(node, daemonOptions(options));
  t.after(() => daemon.dispose());
  return daemon;
}

/** Adds or replaces a manifest file atomically. */
export function writeManifest(daemon: ProxyDaemon, name: string, content: unknown): void {
  const text = typeof content === "string" ? content : JSON.stringify(content);
  const draft = join(daemon.folder, `draft-${name}`);
  writeFileSync(draft, text);
  renameSync(draft, join(daemon.manifests, name));
}

/** A Service in namespace `ns` with one TCP port 80 named `http` at this cluster IP; `more` is merged into the spec. */
export function service(name: string, clusterIP: string, more: Readonly<Record<string, unknown>> = {}) {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: "ns" },
    spec: { type: "ClusterIP", clusterIP, ports: [{ name: "http", port: 80, protocol: "TCP" }], ...more },
  };
}

/** The slice of such a service with these addresses, port 8080; `more` is merged into the slice. */
export function slice(serviceName: string, addresses: readonly string[], more: Readonly<Record<string, unknown>> = {}) {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${serviceName}-1`,
      namespace: "ns",
      labels: { "kubernetes.io/service-name": serviceName },
    },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
    ...more,
  };
}

/** A service with two endpoints. */
export function served(name: string, number: number): unknown[] {
  return [service(name, `10.96.0.${number}`), slice(name, [`10.180.0.${number}`, `10.180.1.${number}`])];
}

/** Whether `nat` sends traffic of the cluster IP to these endpoints. */
export function isServed(saved: string, clusterIP: string, endpoints: readonly string[]): boolean {
  const chain = new RegExp(`^-A KUBE-SERVICES -d ${clusterIP}/32 .* -j (KUBE-SVC-\\S+)$`, "m").exec(saved)?.[1];
  if (chain === undefined) return false;
  const targets = [...saved.matchAll(new RegExp(`^-A ${chain} .*-j (KUBE-SEP-\\S+)$`, "gm"))].map(([, sep]) => sep);
  const reached = targets.map((sep) => new RegExp(`^-A ${sep} .*--to-destination (\\S+)$`, "m").exec(saved)?.[1]);
  return (
    reached.toSorted().join() ===
    endpoints
      .map((address) => `${address}:8080`)
      .toSorted()
      .join()
  );
}

/** Like {@link isServed}, for a service of {@link served}. */
export function isServedAsMade(saved: string, number: number): boolean {
  return isServed(saved, `10.96.0.${number}`, [`10.180.0.${number}`, `10.180.1.${number}`]);
}
