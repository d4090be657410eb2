/**
 * Hashes with TCP from outside: clients connect through two nodes, to a node port and a load balancer's address. Under the policy Cluster
 * both nodes choose alike, under Local each among the endpoints that it has. Then again by the rules that nft has listed and read back.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { pick, sparseTables } from "../../../src/model/sparse-tables.ts";
import { ip } from "../../../src/model/testing/records.ts";
import { clientKey, DEFAULT_HASH_SEED, type Hashing } from "../../../src/net/balancing.ts";
import { jhash } from "../../../src/net/jhash.ts";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { FAMILIES, type Family } from "./cluster-objects.ts";

const CLIENTS = 40;
const PODS = [1, 2, 3, 4, 5];
const NETWORKS = {
  IPv4: { clients: "10.78.0.", pods: "10.180.0.", services: "10.96.0.", nodes: "192.168.0.", table: "ip" },
  IPv6: { clients: "fd00:78::", pods: "fd00:180::", services: "fd00:96::", nodes: "fd00:200::", table: "ip6" },
} as const;
const NODES = ["a", "b"];
const nodeOf = (pod: number) => pod % NODES.length;
const SERVICES: readonly { readonly balancing: Hashing; readonly policy: "Cluster" | "Local" }[] = [
  { balancing: "SourceHash", policy: "Cluster" },
  { balancing: "FlowHash", policy: "Cluster" },
  { balancing: "SourceHash", policy: "Local" },
  { balancing: "FlowHash", policy: "Local" },
];
/** Two ports: the first is asked at the node port, the second at the load balancer's address. */
const PORTS = [0, 1];
const targetPort = (service: number, port: number): number => 8000 + 10 * service + port;
const nodePort = (service: number): number => 30_000 + 10 * service;
const balancer = (family: Family, service: number): string => `${NETWORKS[family].services}${151 + service}`;

function objects(): unknown[] {
  const nodes = NODES.map((name, index) => {
    const addresses = FAMILIES.map((family) => ({
      type: "InternalIP",
      address: `${NETWORKS[family].nodes}${index + 1}`,
    }));
    return { apiVersion: "v1", kind: "Node", metadata: { name }, status: { addresses } };
  });
  const services = SERVICES.flatMap(({ balancing, policy }, index) => {
    const name = `s${index}`;
    const clusterIPs = FAMILIES.map((family) => `${NETWORKS[family].services}${index + 1}`);
    const ports = PORTS.map((port) => {
      return { name: `p${port}`, protocol: "TCP", port: 80 + port, nodePort: nodePort(index) + port };
    });
    const service = {
      ...{ apiVersion: "v1", kind: "Service" },
      metadata: { namespace: "ns", name, annotations: { "kube-proxy-ts/balancing": balancing } },
      spec: {
        ...{ clusterIP: clusterIPs[0], clusterIPs, ipFamilies: FAMILIES, ports },
        ...{ type: "LoadBalancer", externalTrafficPolicy: policy },
      },
      status: { loadBalancer: { ingress: FAMILIES.map((family) => ({ ip: balancer(family, index) })) } },
    };
    const slices = FAMILIES.map((family) => ({
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: family },
      metadata: {
        ...{ namespace: "ns", name: `${name}-${family.toLowerCase()}` },
        labels: { "kubernetes.io/service-name": name },
      },
      ports: PORTS.map((port) => ({ name: `p${port}`, protocol: "TCP", port: targetPort(index, port) })),
      endpoints: PODS.map((pod) => ({
        ...{ addresses: [`${NETWORKS[family].pods}${pod}`], conditions: { ready: true } },
        nodeName: NODES[nodeOf(pod)],
      })),
    }));
    return [service, ...slices];
  });
  return [...nodes, ...services];
}

/** Which endpoint each client meets at each port of each Service through a node: `service port client endpoint`. */
function expected(family: Family, node: number, firstPort: number): string[] {
  const { clients, pods } = NETWORKS[family];
  return SERVICES.flatMap(({ balancing, policy }, service) => {
    const endpoints = PODS.filter((pod) => policy === "Cluster" || nodeOf(pod) === node).map((pod) => {
      return { ip: ip(`${pods}${pod}`), port: targetPort(service, 0) };
    });
    const tables = sparseTables(endpoints, DEFAULT_HASH_SEED);
    assert.ok(tables !== undefined);
    return Array.from({ length: CLIENTS }, (_, at) => {
      const key = clientKey(balancing, { address: ip(`${clients}${at + 1}`), port: firstPort + at });
      const endpoint = pick(tables, (seed) => jhash(key, seed)).ip;
      return PORTS.map((port) => `${targetPort(service, port)} ${firstPort + at} ${endpoint}`);
    }).flat();
  }).sort();
}

/** Connects from each client to each address. Its port is closed: a reset answers. */
const CONNECTOR = `
const net = require("node:net");
const [clients, firstPort, destinations] = JSON.parse(process.argv[1]);
(async () => {
  for (const [at, localAddress] of clients.entries())
    for (const [host, port] of destinations)
      await new Promise((ended) => {
        const socket = net.connect({ host, port, localAddress, localPort: firstPort + at });
        socket.on("error", () => {}).on("close", ended);
      });
})();
`;

/** Where connections went after translation: `port of the client . endpoint . its port`. */
const recorder = (table: "ip" | "ip6"): string => `table ${table} seen {
 set seen { type inet_service . ${table === "ip" ? "ipv4_addr" : "ipv6_addr"} . inet_service; flags dynamic; size 65535; }
 chain in { type filter hook input priority 10; tcp dport 8000-8999 add @seen { tcp sport . ${table} daddr . tcp dport }; }
}
`;

class Node {
  readonly #index: number;
  readonly #daemon: ProxyDaemon;
  readonly #inside: NetworkNamespace;
  readonly #outside: NetworkNamespace;

  private constructor(index: number, daemon: ProxyDaemon, inside: NetworkNamespace, outside: NetworkNamespace) {
    this.#index = index;
    this.#daemon = daemon;
    this.#inside = inside;
    this.#outside = outside;
  }

  static async start(t: TestContext, index: number, layout: string): Promise<Node> {
    const [inside, outside] = await NetworkNamespace.createAll(
      ["in", "out"].map((what) => newRunName(`tcp${index}${what}`)),
    );
    assert.ok(inside && outside);
    t.after(() => NetworkNamespace.removeAll([inside, outside]));
    outside.sysctl({ "net.ipv4.ip_nonlocal_bind": 1, "net.ipv6.ip_nonlocal_bind": 1 });
    await inside.configure([
      ...["link set lo up", `link add out type veth peer name node netns ${outside.name}`, "link set out up"],
      ...FAMILIES.map((family) => `addr add ${NETWORKS[family].nodes}${index + 1} dev lo`),
      ...["addr add 10.79.0.1/24 dev out", "addr add fd00:79::1/64 dev out nodad"],
      ...["route add local 10.180.0.0/24 dev lo", "route add local fd00:180::/64 dev lo"],
    ]);
    await outside.configure([
      ...[
        "link set lo up",
        "link set node up",
        "addr add 10.79.0.2/24 dev node",
        "addr add fd00:79::2/64 dev node nodad",
      ],
      ...["route add local 10.78.0.0/24 dev lo", "route add local fd00:78::/64 dev lo"],
      ...["route add default via 10.79.0.1", "route add default via fd00:79::1"],
    ]);
    await inside.configure(["route add 10.78.0.0/24 via 10.79.0.2", "route add fd00:78::/64 via fd00:79::2"]);
    await inside.exec(["nft", "-f", "-"], { input: recorder("ip") + recorder("ip6") });
    const daemon = await ProxyDaemon.start(inside, {
      hostnameOverride: NODES[index] ?? "",
      objects: objects(),
      config: { mode: "nftables", clusterCIDR: "10.180.0.0/24,fd00:180::/64", nftables: { layout } },
    });
    t.after(() => daemon.dispose());
    return new Node(index, daemon, inside, outside);
  }

  /** Connects from all clients, and asserts that each has met its endpoint. */
  async assertChoices(family: Family, firstPort: number): Promise<void> {
    const { clients, nodes, table } = NETWORKS[family];
    await this.#inside.exec(["nft", "flush", "set", table, "seen", "seen"]);
    const sources = Array.from({ length: CLIENTS }, (_, at) => `${clients}${at + 1}`);
    const destinations = SERVICES.flatMap((_, service) => [
      [`${nodes}${this.#index + 1}`, nodePort(service)],
      [balancer(family, service), 81],
    ]);
    const words = JSON.stringify([sources, firstPort, destinations]);
    await this.#outside.exec([process.execPath, "-e", CONNECTOR, words]);
    const { stdout } = await this.#inside.exec(["nft", "-j", "list", "set", table, "seen", "seen"]);
    const elements: { concat: [number, string, number] }[] = JSON.parse(stdout).nftables.at(-1).set.elem ?? [];
    const found = elements.map(({ concat: [from, endpoint, port] }) => `${port} ${from} ${endpoint}`);
    assert.deepEqual(found.sort(), expected(family, this.#index, firstPort), `${family}, node ${NODES[this.#index]}`);
  }

  /** What `nft list ruleset` prints replaces the ruleset. The daemon ends without a chance to remove rules, or to mend them. */
  async reload(): Promise<void> {
    await this.#daemon.stop("SIGKILL");
    const { stdout } = await this.#inside.exec(["nft", "list", "ruleset"]);
    await this.#inside.exec(["nft", "-f", "-"], { input: `flush ruleset\n${stdout}` });
  }
}

for (const layout of ["Compatible", "Flat"]) {
  test(`${layout}: clients outside meet the endpoints that the tables name, through two nodes`, {
    skip: kernelSkip,
  }, async (t) => {
    const nodes = await Promise.all(NODES.map((_, index) => Node.start(t, index, layout)));
    for (const family of FAMILIES) await Promise.all(nodes.map((node) => node.assertChoices(family, 10_000)));
    await nodes[0]?.reload();
    for (const family of FAMILIES) await nodes[0]?.assertChoices(family, 12_000);
  });
}
