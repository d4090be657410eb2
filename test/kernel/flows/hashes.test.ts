/**
 * Hashes with packets: hundreds of clients through the rules of two nodes, whose slices come in different orders. Every client's endpoint
 * is the one that the sparse tables name, at every port of a Service: so two nodes choose alike, and few clients move.
 */
import assert from "node:assert/strict";
import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { movedShare } from "../../../src/model/moved-share.ts";
import { pick, sparseTables } from "../../../src/model/sparse-tables.ts";
import { ip } from "../../../src/model/testing/records.ts";
import { DEFAULT_HASH_SEED } from "../../../src/net/balancing.ts";
import { ipBytes } from "../../../src/net/ip.ts";
import { jhash } from "../../../src/net/jhash.ts";
import { cgroupMount } from "../../../testkit/net/client-cgroup.ts";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { FAMILIES, type Family } from "./cluster-objects.ts";

const CLIENTS = 1000;
/** Standard deviations of the binomial distribution: 99.99 % of samples are within. */
const WITHIN = 4;
const NETWORKS: Readonly<Record<Family, Readonly<Record<"clients" | "pods" | "services", string>>>> = {
  IPv4: { clients: "10.77.0.", pods: "10.180.0.", services: "10.96.0." },
  IPv6: { clients: "fd00:77::", pods: "fd00:180::", services: "fd00:96::" },
};
const client = (family: Family, number: number): string =>
  family === "IPv4" ? `10.77.${number >> 8}.${number & 255}` : `fd00:77::${number.toString(16)}`;

interface Spec {
  readonly balancing: "SourceHash" | "FlowHash";
  readonly isSticky?: true;
}

/** The Services, each with two ports whose endpoints have ports of their own: `8000 + 10 * index`, and one more. */
const SERVICES: readonly Spec[] = [
  { balancing: "SourceHash" },
  { balancing: "FlowHash" },
  { balancing: "FlowHash", isSticky: true },
];
const targetPort = (service: number, port: number): number => 8000 + 10 * service + port;

/** Which weight the slice of an endpoint has; undefined: it has none. */
type Weights = ReadonlyMap<number, number | undefined>;

function objectsFor(weights: Weights, isReversed: boolean): unknown[] {
  const nodes = ["a", "b"].map((name, index) => {
    const addresses = [`192.168.0.${index + 1}`, `fd00:200::${index + 1}`];
    const status = { addresses: addresses.map((address) => ({ type: "InternalIP", address })) };
    return { apiVersion: "v1", kind: "Node", metadata: { name }, status };
  });
  const services = SERVICES.flatMap(({ balancing, isSticky }, index) => {
    const name = `s${index}`;
    const ports = [0, 1].map((port) => ({ name: `p${port}`, protocol: "UDP", port: 80 + port, targetPort: 80 }));
    const clusterIPs = FAMILIES.map((family) => `${NETWORKS[family].services}${index + 1}`);
    const externalIPs = FAMILIES.map((family) => `${NETWORKS[family].services}${index + 101}`);
    const service = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "ns", name, annotations: { "kube-proxy-ts/balancing": balancing } },
      spec: {
        ...{ clusterIP: clusterIPs[0], clusterIPs, ipFamilies: FAMILIES, externalIPs, ports },
        ...(isSticky && { sessionAffinity: "ClientIP" }),
      },
    };
    const slices = [...weights].flatMap(([pod, weight]) =>
      FAMILIES.map((family) => ({
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: {
          ...{ namespace: "ns", name: `${name}-${family.toLowerCase()}-${pod}` },
          labels: { "kubernetes.io/service-name": name },
          annotations: weight === undefined ? {} : { "kube-proxy-ts/weight": `${weight}` },
        },
        addressType: family,
        ports: [0, 1].map((port) => ({ name: `p${port}`, protocol: "UDP", port: targetPort(index, port) })),
        endpoints: [{ addresses: [`${NETWORKS[family].pods}${pod}`], conditions: { ready: true }, nodeName: "b" }],
      })),
    );
    return [service, ...(isReversed ? slices.reverse() : slices)];
  });
  return [...nodes, ...services];
}

/** The endpoint of a client by the tables, as an address. */
function expected(family: Family, service: number, weights: Weights, number: number, sourcePort: number): string {
  const port = targetPort(service, 0);
  const endpoints = [...weights].flatMap(([pod, weight]) =>
    weight === 0 ? [] : [{ ip: ip(`${NETWORKS[family].pods}${pod}`), port, ...(weight !== undefined && { weight }) }],
  );
  const tables = sparseTables(endpoints, DEFAULT_HASH_SEED);
  assert.ok(tables !== undefined);
  const flow = SERVICES[service]?.balancing === "FlowHash" ? [sourcePort >> 8, sourcePort & 255, 0, 0] : [];
  const bytes = Uint8Array.of(...ipBytes(ip(client(family, number))), ...flow);
  return pick(tables, (seed) => jhash(bytes, seed)).ip;
}

/** Sends a datagram from each client to each Service. Sources need not be addresses of the node: its sysctls allow that. */
const SENDER = `
const dgram = require("node:dgram");
const [clients, firstPort, destinations] = JSON.parse(process.argv[1]);
(async () => {
  for (const [at, address] of clients.entries()) {
    const socket = dgram.createSocket(address.includes(":") ? "udp6" : "udp4");
    socket.on("error", () => {});
    await new Promise((bound) => socket.bind({ address, port: firstPort + at }, bound));
    for (const [to, port] of destinations)
      await new Promise((sent) => socket.send("x", port, to, sent));
    socket.close();
  }
})();
`;

/** Where the clients' datagrams went after translation: `source port . endpoint . its port`. */
const recorder = (family: "ip" | "ip6"): string => `table ${family} seen {
 set seen { type ${family === "ip" ? "ipv4_addr . inet_service . ipv4_addr" : "ipv6_addr . inet_service . ipv6_addr"} . inet_service; flags dynamic; size 65535; }
 chain out {
  type filter hook output priority 10
  udp dport 8000-8999 add @seen { ${family} saddr . udp sport . ${family} daddr . udp dport }
 }
}
`;

class Node {
  readonly daemon: ProxyDaemon;
  readonly #namespace: NetworkNamespace;
  readonly #cgroup: string | undefined;

  private constructor(daemon: ProxyDaemon, namespace: NetworkNamespace, cgroup: string | undefined) {
    this.daemon = daemon;
    this.#namespace = namespace;
    this.#cgroup = cgroup;
  }

  static async start(t: TestContext, name: string, mode: string, weights: Weights): Promise<Node> {
    const cgroup = mode === "ebpf" ? join(cgroupMount() ?? "", newRunName(`hashes${name}`)) : undefined;
    if (cgroup !== undefined) {
      mkdirSync(cgroup);
      t.after(() => rmdirSync(cgroup));
    }
    const namespace = await NetworkNamespace.create(newRunName(`hashes${name}`));
    t.after(() => namespace.remove());
    namespace.sysctl({ "net.ipv4.ip_nonlocal_bind": 1, "net.ipv6.ip_nonlocal_bind": 1 });
    const number = name === "a" ? 1 : 2;
    await namespace.configure([
      `addr add 192.168.0.${number}/32 dev lo`,
      `addr add fd00:200::${number}/128 dev lo`,
      ...["10.77.0.0/16", "10.180.0.0/24", "10.96.0.0/24"].map((net) => `route add local ${net} dev lo`),
      ...["fd00:77::/64", "fd00:180::/64", "fd00:96::/64"].map((net) => `route add local ${net} dev lo`),
    ]);
    await namespace.exec(["nft", "-f", "-"], { input: recorder("ip") + recorder("ip6") });
    const daemon = await ProxyDaemon.start(namespace, {
      hostnameOverride: name,
      objects: objectsFor(weights, name === "b"),
      config: {
        mode: mode === "ebpf" ? mode : "nftables",
        clusterCIDR: "10.77.0.0/16,fd00:77::/64",
        ...(mode === "flat" && { nftables: { layout: "Flat" } }),
        ...(cgroup !== undefined && { ebpf: { cgroupRoot: cgroup, pinFolder: "none" } }),
      },
    });
    t.after(() => daemon.dispose());
    return new Node(daemon, namespace, cgroup);
  }

  /** Sends from all clients, and says where each Service's datagrams went: `service port source` → endpoints. */
  async ask(family: Family, firstPort: number): Promise<Map<string, string>> {
    const table = family === "IPv4" ? "ip" : "ip6";
    await this.#namespace.exec(["nft", "flush", "set", table, "seen", "seen"]);
    const clients = Array.from({ length: CLIENTS }, (_, number) => client(family, number + 1));
    const { services } = NETWORKS[family];
    const destinations = SERVICES.flatMap((_, index) => [
      ...[80, 81].map((port) => [`${services}${index + 1}`, port] as const),
      [`${services}${index + 101}`, 80] as const,
    ]);
    const sender = [process.execPath, "-e", SENDER, JSON.stringify([clients, firstPort, destinations])] as const;
    const enter = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', this.#cgroup ?? "", ...sender] as const;
    await this.#namespace.exec(this.#cgroup === undefined ? [...sender] : [...enter]);
    const { stdout } = await this.#namespace.exec(["nft", "-j", "list", "set", table, "seen", "seen"]);
    const found = new Map<string, Set<string>>();
    for (const { set } of JSON.parse(stdout).nftables) {
      for (const { concat } of set?.elem ?? []) {
        const [, sourcePort, endpoint, port] = concat;
        const key = `${Math.floor((port - 8000) / 10)} ${sourcePort - firstPort + 1}`;
        found.set(key, (found.get(key) ?? new Set()).add(endpoint));
      }
    }
    return new Map(Array.from(found, ([key, endpoints]) => [key, [...endpoints].join()]));
  }

  /** Writes the objects, and waits until the rules lead to all endpoints that they should, and to no other. */
  async become(weights: Weights, name: string): Promise<void> {
    this.daemon.writeObjects(objectsFor(weights, name === "b"));
    const wanted = [...weights].flatMap(([pod, weight]) => (weight === 0 ? [] : [pod])).sort();
    await this.daemon.until(`endpoints ${wanted}`, async () => {
      const { stdout } = await this.#namespace.exec(["nft", "list", "ruleset"]);
      const found = ["10\\.180\\.0\\.", "fd00:180::"].map((net) => {
        const ends = [...stdout.matchAll(new RegExp(`: ${net}(\\d+) \\. 8`, "g"))];
        return [...new Set(ends.map(([, pod]) => Number(pod)))].sort();
      });
      return found.every((pods) => pods.join() === wanted.join());
    });
  }

  /** Whether what `nft list ruleset` prints can be loaded again, and is then the same. */
  async assertLoadsAgain(): Promise<void> {
    const listed = async () => (await this.#namespace.exec(["nft", "list", "table", "ip", "kube-proxy"])).stdout;
    const text = await listed();
    await this.#namespace.exec(["nft", "-f", "-"], { input: `delete table ip kube-proxy\n${text}` });
    // nft lists elements in no fixed order, several in a line, and clients with the time that they have left.
    const words = (list: string) =>
      list
        .replaceAll(/ expires \w+/g, "")
        .split(/[\s,]+/)
        .sort();
    assert.deepEqual(words(await listed()), words(text));
  }
}

const weightsOf = (...pods: readonly (readonly [number, number?])[]): Weights =>
  new Map(pods.map(([pod, w]) => [pod, w]));

for (const mode of ["compatible", "flat", "ebpf"]) {
  test(`${mode}: two nodes lead each client to the endpoint that the tables name`, { skip: kernelSkip }, async (t) => {
    const five = weightsOf([1], [2], [3], [4], [5]);
    const nodes = await Promise.all(["a", "b"].map((name) => Node.start(t, name, mode, five)));
    let firstPort = 10_000;
    const asTables = async (family: Family, weights: Weights): Promise<Map<string, string>> => {
      firstPort += 1_000;
      const [one, other] = await Promise.all(nodes.map((node) => node.ask(family, firstPort)));
      assert.ok(one && other);
      // Clients of session affinity are remembered: only their first connections were by hash.
      const isSettled = (key: string) => firstPort < 13_000 || !key.startsWith("2 ");
      for (let number = 1; number <= CLIENTS; number += 1) {
        for (const service of SERVICES.keys()) {
          const key = `${service} ${number}`;
          if (!isSettled(key)) continue;
          const endpoint = expected(family, service, weights, number, firstPort + number - 1);
          assert.deepEqual(
            [one.get(key), other.get(key)],
            [endpoint, endpoint],
            `${family}, client and service ${key}`,
          );
        }
      }
      return one;
    };
    const first = new Map<Family, Map<string, string>>();
    for (const family of FAMILIES) {
      const found = await asTables(family, five);
      first.set(family, found);
      for (const pod of five.keys()) {
        const count = [...found].filter(
          ([key, end]) => key.startsWith("0 ") && end === `${NETWORKS[family].pods}${pod}`,
        );
        const limit = 0.05 * (CLIENTS / 5) + WITHIN * Math.sqrt(CLIENTS * 0.2 * 0.8);
        assert.ok(Math.abs(count.length - CLIENTS / 5) <= limit, `${family}: pod ${pod} has ${count.length}`);
      }
    }
    const six = weightsOf([1], [2], [3], [4], [5], [6]);
    await Promise.all(nodes.map((node, index) => node.become(six, index === 0 ? "a" : "b")));
    for (const family of FAMILIES) {
      const found = await asTables(family, six);
      const moved = [...found].filter(
        ([key, end]) => key.startsWith("0 ") && first.get(family)?.get(key) !== end,
      ).length;
      const at = (weights: Weights) =>
        [...weights.keys()].map((pod) => ({ ip: ip(`${NETWORKS[family].pods}${pod}`), port: 8000 }));
      const share = movedShare(at(five), at(six), DEFAULT_HASH_SEED);
      const limit = WITHIN * Math.sqrt(CLIENTS * share * (1 - share));
      assert.ok(Math.abs(moved - CLIENTS * share) <= limit, `${family}: ${moved} moved, computed ${CLIENTS * share}`);
      t.diagnostic(`${family}: ${moved} of ${CLIENTS} clients moved, computed ${(CLIENTS * share).toFixed(1)}`);
      // Affinity wins over the hash.
      for (const [key, end] of found)
        if (key.startsWith("2 ")) assert.equal(end, first.get(family)?.get(key), `${family}: remembered ${key}`);
    }
    const drained = weightsOf([1, 1], [2, 9], [3, 0]);
    await Promise.all(nodes.map((node, index) => node.become(drained, index === 0 ? "a" : "b")));
    for (const family of FAMILIES) {
      const found = await asTables(family, drained);
      const heavy = [...found].filter(([key, end]) => key.startsWith("1 ") && end.endsWith("2")).length;
      const limit = 0.05 * CLIENTS + WITHIN * Math.sqrt(CLIENTS * 0.9 * 0.1);
      assert.ok(Math.abs(heavy - CLIENTS * 0.9) <= limit, `${family}: ${heavy} of ${CLIENTS} to weight 9`);
      for (const [key, end] of found)
        assert.ok(/[12]$/.test(end), `${family}: ${key} goes to ${end}, which is drained`);
    }
    if (mode !== "ebpf") await nodes[0]?.assertLoadsAgain();
  });
}
