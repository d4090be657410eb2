/** Hashes of iptables rules with packets: two nodes, whose slices come in different orders, lead each client as computed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { clientHash } from "../../../src/kernel/iptables/hash-program.ts";
import { hashTurns } from "../../../src/model/hash-order.ts";
import { ip, makeEndpoint } from "../../../src/model/testing/records.ts";
import { DEFAULT_HASH_SEED } from "../../../src/net/balancing.ts";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { FAMILIES, type Family } from "./cluster-objects.ts";

const CLIENTS = 1000;
const FIRST_PORT = 10_000;
const NETWORKS = {
  IPv4: { pods: "10.180.0.", services: "10.96.0." },
  IPv6: { pods: "fd00:180::", services: "fd00:96::" },
} as const;
const clientAt = (family: Family, number: number): string =>
  family === "IPv4" ? `10.77.${number >> 8}.${number & 255}` : `fd00:77::${number.toString(16)}`;
const BALANCINGS = ["SourceHash", "FlowHash"] as const;
/** By the number of a pod. */
const WEIGHTS = new Map([
  [1, 1],
  [2, 3],
  [3, 2],
  [4, 0],
]);
const targetPort = (service: number, port: number): number => 8000 + 10 * service + port;

function objects(isReversed: boolean): unknown[] {
  const addresses = ["192.168.0.1", "fd00:200::1"].map((address) => ({ type: "InternalIP", address }));
  const node = { apiVersion: "v1", kind: "Node", metadata: { name: "a" }, status: { addresses } };
  return BALANCINGS.flatMap((balancing, index) => {
    const name = `s${index}`;
    const clusterIPs = FAMILIES.map((family) => `${NETWORKS[family].services}${index + 1}`);
    const ports = [0, 1].map((port) => ({ name: `p${port}`, protocol: "UDP", port: 80 + port }));
    const annotations = { "kube-proxy-ts/balancing": balancing };
    const service = {
      ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "ns", name, annotations } },
      spec: { clusterIP: clusterIPs[0], clusterIPs, ipFamilies: FAMILIES, ports },
    };
    const slices = [...WEIGHTS].flatMap(([pod, weight]) =>
      FAMILIES.map((family) => ({
        ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: family },
        metadata: {
          ...{ namespace: "ns", name: `${name}-${family.toLowerCase()}-${pod}` },
          labels: { "kubernetes.io/service-name": name },
          annotations: { "kube-proxy-ts/weight": `${weight}` },
        },
        ports: [0, 1].map((port) => ({ name: `p${port}`, protocol: "UDP", port: targetPort(index, port) })),
        endpoints: [{ addresses: [`${NETWORKS[family].pods}${pod}`], conditions: { ready: true }, nodeName: "b" }],
      })),
    );
    return [node, service, ...(isReversed ? slices.reverse() : slices)];
  });
}

/** The endpoint of a client by the order of endpoints, as an address. */
function expected(family: Family, service: number, number: number): string {
  const endpoints = [...WEIGHTS].flatMap(([pod, weight]) =>
    weight === 0 ? [] : [makeEndpoint(`${NETWORKS[family].pods}${pod}`, targetPort(service, 0), { weight })],
  );
  const isFlow = BALANCINGS[service] === "FlowHash";
  const client = ip(clientAt(family, number));
  const port = FIRST_PORT + number;
  const turn = hashTurns(endpoints, DEFAULT_HASH_SEED).find(
    ({ seed, below }) => (clientHash({ isFlow, seed }, client, port) ?? Number.NaN) < below,
  );
  return turn?.endpoint.ip ?? "";
}

/** Sends a datagram from each client to each Service. */
const SENDER = `
const dgram = require("node:dgram");
const [firstPort, clients, destinations] = JSON.parse(process.argv[1]);
(async () => {
  for (const [at, address] of clients.entries()) {
    const socket = dgram.createSocket(address.includes(":") ? "udp6" : "udp4");
    socket.on("error", () => {});
    await new Promise((bound) => socket.bind({ address, port: firstPort + at + 1 }, bound));
    for (const [to, port] of destinations) await new Promise((sent) => socket.send("x", port, to, sent));
    socket.close();
  }
})();
`;

/** Where the clients' datagrams went after translation. */
const recorder = (table: "ip" | "ip6"): string => `table ${table} seen {
 set seen { type ${table === "ip" ? "ipv4_addr" : "ipv6_addr"} . inet_service . inet_service; flags dynamic; size 65535; }
 chain out { type filter hook output priority 10; udp dport 8000-8999 add @seen { ${table} daddr . udp sport . udp dport }; }
}
`;

async function started(name: string): Promise<NetworkNamespace> {
  const namespace = await NetworkNamespace.create(newRunName(`hash${name}`));
  namespace.sysctl({ "net.ipv4.ip_nonlocal_bind": 1, "net.ipv6.ip_nonlocal_bind": 1 });
  await namespace.configure([
    "addr add 192.168.0.1/32 dev lo",
    "addr add fd00:200::1/128 dev lo",
    ...["10.77.0.0/16", "10.180.0.0/24", "10.96.0.0/24"].map((net) => `route add local ${net} dev lo`),
    ...["fd00:77::/64", "fd00:180::/64", "fd00:96::/64"].map((net) => `route add local ${net} dev lo`),
  ]);
  await namespace.exec(["nft", "-f", "-"], { input: recorder("ip") + recorder("ip6") });
  return namespace;
}

/** Whether what the tool saves can be loaded again, and is then the same but for counts. */
async function assertLoadsAgain(namespace: NetworkNamespace, tool: "iptables" | "ip6tables"): Promise<void> {
  const rules = async () => {
    const { stdout } = await namespace.exec([`${tool}-save`, "-t", "nat"]);
    return stdout.replaceAll(/^#.*\n| \[\d+:\d+\]$/gm, "");
  };
  const saved = await rules();
  assert.match(saved, /-m bpf --bytecode/, tool);
  await namespace.exec([`${tool}-restore`], { input: saved });
  assert.equal(await rules(), saved, tool);
}

test("two nodes lead each client to the endpoint that the order names", { skip: kernelSkip }, async (t) => {
  for (const isReversed of [false, true]) {
    const namespace = await started(isReversed ? "b" : "a");
    t.after(() => namespace.remove());
    const daemon = await ProxyDaemon.start(namespace, {
      hostnameOverride: "a",
      objects: objects(isReversed),
      config: { mode: "iptables", clusterCIDR: "10.77.0.0/16,fd00:77::/64" },
    });
    t.after(() => daemon.dispose());
    for (const family of FAMILIES) {
      const { services, pods } = NETWORKS[family];
      const destinations = BALANCINGS.flatMap((_, index) => [80, 81].map((port) => [`${services}${index + 1}`, port]));
      const sources = Array.from({ length: CLIENTS }, (_, index) => clientAt(family, index + 1));
      await namespace.exec([process.execPath, "-e", SENDER, JSON.stringify([FIRST_PORT, sources, destinations])]);
      const table = family === "IPv4" ? "ip" : "ip6";
      const { stdout } = await namespace.exec(["nft", "-j", "list", "set", table, "seen", "seen"]);
      const elements: { concat: [string, number, number] }[] = JSON.parse(stdout).nftables.at(-1).set.elem;
      const found = elements.map(({ concat: [end, sourcePort, port] }) => `${sourcePort} ${port} ${end}`).sort();
      const wanted = sources.flatMap((_, index) =>
        BALANCINGS.flatMap((__, service) =>
          [0, 1].map(
            (port) => `${FIRST_PORT + index + 1} ${targetPort(service, port)} ${expected(family, service, index + 1)}`,
          ),
        ),
      );
      assert.deepEqual(found, wanted.sort(), `${family}, pods ${pods}`);
    }
    // Without a chance to remove rules, or to mend them.
    await daemon.stop("SIGKILL");
    for (const tool of ["iptables", "ip6tables"] as const) await assertLoadsAgain(namespace, tool);
  }
});
