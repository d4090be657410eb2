/**
 * Packets from the node itself to node ports on loopback addresses in nftables mode, over every row of reference
 * releases.md §1.6: gate, list, layout, protocol and family; then restarts, and taken ports.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import { reasonToSkip } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import { ClientCgroup } from "../../../testkit/net/client-cgroup.ts";
import type { Prober } from "../../../testkit/net/namespace-prober.ts";
import type { Topology } from "../../../testkit/net/topology.ts";
import { defaultClusterCidr, nodeA } from "../../../testkit/net/topology-spec.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { addServingPod, kernelSkip, probersFor, topologyFor } from "../../../testkit/support/topology.ts";
import { nodeObject, service, slice } from "../faults/fault-node.ts";
import { ask, outcomes } from "./asking.ts";

const GATE = "KubeProxyNFTablesLocalhostNodePorts";
const NODE_PORT = 30080;
const PORT = 8080;
const webPod = { name: "web-1", node: nodeA.name, ipv4: "10.180.0.11", ipv6: "fd00:10:180::11" } as const;
const PROTOCOLS = ["TCP", "UDP", "SCTP"] as const;
const LAYOUTS = ["Compatible", "Flat"] as const;
/** The node's bridge, the source address of its requests to its pods. */
const ANSWER = /^web-1 saw (10\.180\.0\.1|fd00:10:180::1)$/;

type Config = Readonly<Record<string, unknown>>;

interface Scene {
  readonly topology: Topology;
  readonly daemon: ProxyDaemon;
  readonly node: Prober;
}

const objects = (ipv4 = [webPod.ipv4 as string], more: Readonly<Record<string, unknown>> = {}): unknown[] => {
  const ports = PROTOCOLS.map((protocol) => ({
    name: protocol.toLowerCase(),
    port: 80,
    protocol,
    nodePort: NODE_PORT,
  }));
  const slicePorts = ports.map(({ name, protocol }) => ({ name, port: PORT, protocol }));
  const ipv6 = { addressType: "IPv6", metadata: { ...slice("web", []).metadata, name: "web-6" } };
  return [
    nodeObject,
    service("web", "10.96.0.1", {
      type: "NodePort",
      clusterIPs: ["10.96.0.1", "fd00:10:96::1"],
      ipFamilies: ["IPv4", "IPv6"],
      ports,
      ...more,
    }),
    slice("web", ipv4, { ports: slicePorts }),
    slice("web", [webPod.ipv6], { ...ipv6, ports: slicePorts }),
  ];
};

/** @param cgroup for the node's own clients. */
async function scene(t: TestContext, config: Config, cgroup?: string): Promise<Scene> {
  const topology = await topologyFor(t);
  const listen = PROTOCOLS.filter((protocol) => protocol !== "SCTP").map((protocol) => ({ protocol, port: PORT }));
  await addServingPod(topology, webPod, listen);
  const daemon = await ProxyDaemon.start(topology.namespace(nodeA.name), {
    hostnameOverride: nodeA.name,
    objects: objects(),
    config: { mode: "nftables", clusterCIDR: defaultClusterCidr, ...config },
  });
  t.after(() => daemon.dispose());
  return {
    topology,
    daemon,
    node: probersFor(topology, [nodeA.name], cgroup === undefined ? {} : { cgroup })[nodeA.name] as Prober,
  };
}

/** In place: the process ends, and starts with another configuration. */
async function restart(daemon: ProxyDaemon, config: Config): Promise<void> {
  const file = join(daemon.folder, "config.json");
  const before = JSON.parse(readFileSync(file, "utf8"));
  writeFileSync(file, JSON.stringify({ ...before, ...config }));
  await daemon.stop();
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
}

const rejected = (daemon: ProxyDaemon, family: string, protocol: string) =>
  daemon.metric(
    `kubeproxy_nftables_localhost_nodeport_rejected_packets_total{ip_family="${family}",protocol="${protocol}"}`,
  );

interface Row {
  readonly config: Config;
  /** Answered on 127.0.0.1 and on ::1. */
  readonly answered: readonly [ipv4: readonly string[], ipv6: readonly string[]];
  /** Whether rules reject and count the rest. */
  readonly isCounted: boolean;
}

const on = { featureGates: { [GATE]: true } };
const none = [[], []] as const;
const ROWS: readonly Row[] = [
  { config: { featureGates: {}, nodePortAddresses: ["primary", "localhost"] }, answered: none, isCounted: false },
  { config: { ...on, nodePortAddresses: [] }, answered: none, isCounted: true },
  { config: { ...on, nodePortAddresses: ["primary"] }, answered: none, isCounted: true },
  { config: { ...on, nodePortAddresses: ["all"] }, answered: none, isCounted: true },
  { config: { ...on, nodePortAddresses: ["primary", "localhost"] }, answered: [["TCP"], ["TCP"]], isCounted: true },
  { config: { ...on, nodePortAddresses: ["all", "localhost"] }, answered: [["TCP"], ["TCP"]], isCounted: true },
  { config: { ...on, nodePortAddresses: ["primary", "127.0.0.1/32"] }, answered: [["TCP"], []], isCounted: true },
  { config: { ...on, nodePortAddresses: ["::1/128"] }, answered: [[], ["TCP"]], isCounted: true },
  { config: { ...on, nodePortAddresses: ["126.0.0.0/7"] }, answered: none, isCounted: true },
];

for (const layout of LAYOUTS) {
  test(`node ports on loopback, each row of gate and list, ${layout}`, { skip: kernelSkip }, async (t) => {
    const { daemon, node } = await scene(t, { nftables: { layout } });
    for (const { config, answered, isCounted } of ROWS) {
      await restart(daemon, { nftables: { layout }, ...config });
      const cells = (
        [
          ["IPv4", "127.0.0.1", answered[0]],
          ["IPv6", "::1", answered[1]],
        ] as const
      ).flatMap(([family, address, served]) =>
        (["TCP", "UDP"] as const).map(async (protocol) => {
          const before = (await rejected(daemon, family, protocol)) ?? 0;
          const [met = ""] = outcomes(await ask(node, { protocol, address, port: NODE_PORT }));
          const after = await rejected(daemon, family, protocol);
          const cell = `${JSON.stringify(config)}: ${protocol} ${address}`;
          if (served.includes(protocol)) {
            assert.match(met, ANSWER, cell);
            assert.equal(after, undefined, cell);
          } else {
            assert.equal(met, "refused", cell);
            // The metrics page is rendered at most every 100 ms.
            const isGrowing = async () => ((await rejected(daemon, family, protocol)) ?? 0) > before;
            if (isCounted) await daemon.until(`the counter grows: ${cell}`, isGrowing, 3000);
            else assert.equal(after, undefined, cell);
          }
        }),
      );
      await Promise.all(cells);
    }
  });
}

test("in ebpf mode node ports on loopback are relayed as well", { skip: kernelSkip }, async (t) => {
  const list = { nodePortAddresses: ["primary", "localhost"] };
  const { node } = await scene(t, { mode: "ebpf", ...on, ...list });
  const met = async (protocol: "TCP" | "UDP", address: string) =>
    outcomes(await ask(node, { protocol, address, port: NODE_PORT }))[0] ?? "";
  for (const address of ["127.0.0.1", "::1"]) {
    assert.match(await met("TCP", address), ANSWER);
    assert.equal(await met("UDP", address), "refused");
  }
});

test("in ebpf mode TCP of the node is led at the socket, also while the process is away; pods are not", {
  skip: kernelSkip || reasonToSkip(),
}, async (t) => {
  const [cgroup, bpffs] = [ClientCgroup.create("kpts-localhost"), await testBpffs(t)];
  t.after(() => cgroup.remove());
  const ebpf = { cgroupRoot: cgroup.path, pinFolder: `${bpffs.path}/kept` };
  const list = { nodePortAddresses: ["primary", "localhost"] };
  const { topology, daemon, node } = await scene(t, { mode: "ebpf", ebpf, ...on, ...list }, cgroup.path);
  const met = async (prober: Prober | undefined, address: string) =>
    outcomes(await ask(prober as Prober, { protocol: "TCP", address, port: NODE_PORT }))[0] ?? "";
  const pod = probersFor(topology, [webPod.name], { cgroup: cgroup.path })[webPod.name];
  // Without the process no relay listens.
  const whileAway = async (expected: RegExp): Promise<void> => {
    await daemon.stop("SIGKILL");
    for (const address of ["127.0.0.1", "::1"]) {
      assert.match(await met(node, address), expected);
      assert.equal(await met(pod, address), "refused");
    }
  };
  for (const address of ["127.0.0.1", "::1"]) assert.match(await met(node, address), ANSWER);
  await whileAway(ANSWER);
  await restart(daemon, { nodePortAddresses: ["primary"] });
  await whileAway(/^refused$/);
});

/** Milliseconds until a blocking connect is refused: what clients of the C library do. */
async function blockingConnectMs({ topology }: Scene, address: string): Promise<number> {
  const program = `import socket, time
s = socket.socket(socket.AF_INET6 if ":" in "${address}" else socket.AF_INET)
t = time.monotonic()
try: s.connect(("${address}", ${NODE_PORT}))
except ConnectionRefusedError: print(round(1000 * (time.monotonic() - t)))`;
  const { stdout } = await topology.namespace(nodeA.name).exec(["python3", "-c", program]);
  return Number(stdout);
}

test("a blocking connect is refused at once in the flat layout", { skip: kernelSkip }, async (t) => {
  const it = await scene(t, { ...on, nodePortAddresses: ["primary"], nftables: { layout: "Flat" } });
  for (const address of ["127.0.0.1", "127.0.0.9", "::1"]) {
    const took = await blockingConnectMs(it, address);
    assert.ok(took < 500, `${address}: ${took} ms`);
  }
});

test("a node port that another program has on loopback: named, the other family is served", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, daemon, node } = await scene(t, { ...on, nodePortAddresses: ["primary"] });
  const program = `import socket, time
s = socket.create_server(("127.0.0.1", ${NODE_PORT}))
time.sleep(600)`;
  const other = topology.namespace(nodeA.name).spawn(["python3", "-c", program]);
  t.after(() => other.kill());
  const isListening = async () =>
    (await topology.namespace(nodeA.name).exec(["ss", "-Hltn"])).stdout.includes(":30080");
  await daemon.until("the other program listens", isListening);
  await restart(daemon, { nodePortAddresses: ["primary", "localhost"] });
  await daemon.logged(/Failed to create localhost nodeport proxy.*failed to listen on 127\.0\.0\.1:30080/);
  assert.match(outcomes(await ask(node, { protocol: "TCP", address: "::1", port: NODE_PORT }))[0] ?? "", ANSWER);
  const failures = await daemon.metric(
    'kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total{ip_family="IPv4"}',
  );
  assert.ok((failures ?? 0) > 0);
});
