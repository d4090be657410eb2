/** What only a proxy that carries the bytes itself can do, or do wrong: endpoints that fail, closes from either side, no rules. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Prober } from "../../../testkit/net/namespace-prober.ts";
import type { Topology } from "../../../testkit/net/topology.ts";
import { clientPod, defaultClusterCidr, nodeA } from "../../../testkit/net/topology-spec.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { addServingPod, kernelSkip, probersFor, topologyFor } from "../../../testkit/support/topology.ts";
import { nodeObject, service, slice } from "../faults/fault-node.ts";
import { outcomes } from "./asking.ts";
import { ByteStream } from "./byte-stream.ts";
import { addPointToPointPod } from "./point-to-point-pod.ts";

const WEB = "10.96.0.1";
const webPod = { name: "web-1", node: nodeA.name, ipv4: "10.180.0.11", ipv6: "fd00:10:180::11" } as const;
/** No host has this address. */
const SILENT = "10.180.0.99";
const PORT = 8080;

interface Scene {
  readonly topology: Topology;
  readonly daemon: ProxyDaemon;
  readonly pod: Prober;
  readonly outside: Prober;
}

async function scene(
  t: TestContext,
  objects: readonly unknown[],
  userspace: Readonly<Record<string, unknown>> = {},
): Promise<Scene> {
  const topology = await topologyFor(t);
  await addServingPod(topology, webPod, [
    { protocol: "TCP", port: PORT },
    { protocol: "UDP", port: PORT },
  ]);
  const daemon = await ProxyDaemon.start(topology.namespace(nodeA.name), {
    hostnameOverride: nodeA.name,
    objects: [nodeObject, ...objects],
    config: {
      mode: "userspace",
      clusterCIDR: defaultClusterCidr,
      iptables: { syncPeriod: "1s", minSyncPeriod: "1ms" },
      // On a busy machine an endpoint may not answer within the default 250 ms, after which nothing waits for it any more.
      udpIdleTimeout: "10s",
      userspace,
    },
  });
  t.after(() => daemon.dispose());
  const probers = probersFor(topology, ["client-pod", "client"]);
  return { topology, daemon, pod: probers["client-pod"], outside: probers.client };
}

/** A pod that sends endlessly, as `web`'s endpoint. */
async function streamingPod(topology: Topology): Promise<ByteStream> {
  const pod = await topology.addPod({ name: "source", node: nodeA.name, ipv4: "10.180.0.21", ipv6: undefined });
  return await ByteStream.source(pod, PORT);
}

const web = (endpoints: readonly string[]) => [service("web", WEB), slice("web", endpoints)];
const toWeb = { protocol: "TCP", address: WEB, port: 80, timeoutMs: 8000 } as const;
const series = (name: string, protocol: string) =>
  `kubeproxy_userspace_${name}{ip_family="IPv4",protocol="${protocol}"}`;

/** A metrics page may be a tenth of a second old. */
async function counted(daemon: ProxyDaemon, name: string, protocol: string, expected: number): Promise<void> {
  const isThere = async () => (await daemon.metric(series(name, protocol))) === expected;
  await daemon.until(`${name} of ${protocol} is ${expected}`, isThere);
}

test("userspace: an endpoint that refuses and one that never answers are passed over, and counted", {
  skip: kernelSkip,
}, async (t) => {
  const { daemon, pod } = await scene(t, web([webPod.ipv4, clientPod.ipv4, SILENT]));
  // One after the other: concurrent clients take each other's turns.
  const answers = await pod.connect({ ...toWeb, count: 9, sequential: true });
  assert.deepEqual(
    answers.map((answer) => (answer.ok ? answer.pod : answer.error)),
    Array.from({ length: 9 }, () => "web-1"),
  );
  await counted(daemon, "connections_total", "tcp", 9);
  assert.ok(((await daemon.metric(series("dial_failures_total", "tcp"))) ?? 0) > 0);
});

test("userspace: an endpoint dies in mid-stream; then there is none, and then one again", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, daemon, pod } = await scene(t, []);
  const source = await streamingPod(topology);
  daemon.writeObjects([nodeObject, ...web(["10.180.0.21"])]);
  const reaches = async (wanted: string) =>
    await daemon.until(`clients meet ${wanted}`, async () => {
      const met = outcomes(await pod.connect({ ...toWeb, timeoutMs: 300 }));
      return met[0]?.startsWith(wanted) === true;
    });
  // To the prober, endless bytes are no answer.
  await reaches("timeout");
  const sink = await ByteStream.sink(topology.namespace(clientPod.name), WEB, 80);
  await sink.flows();
  source.kill();
  await sink.ended();
  daemon.writeObjects([nodeObject, ...web([])]);
  await reaches("refused");
  daemon.writeObjects([nodeObject, ...web([webPod.ipv4])]);
  await reaches("web-1");
  await daemon.until("connections are given back", async () => {
    return (await daemon.metric(series("active_connections", "tcp"))) === 0;
  });
});

test("userspace: told to stop, it lets a transfer go on for the time it was given, and then cuts it", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, daemon, pod } = await scene(t, web(["10.180.0.21"]), { drainTimeout: "1500ms" });
  await streamingPod(topology);
  const sink = await ByteStream.sink(topology.namespace(clientPod.name), WEB, 80);
  await sink.flows();
  const stoppedAt = Date.now();
  const ended = daemon.stop("SIGTERM");
  await daemon.until("it waits", () => daemon.log.includes("Waiting for connections to end"));
  await sink.flows();
  assert.deepEqual(outcomes(await pod.connect(toWeb)), ["refused"]);
  await sink.ended();
  assert.equal(await ended, 0);
  assert.ok(Date.now() - stoppedAt >= 1500, `cut after ${Date.now() - stoppedAt} ms`);
});

test("userspace: told to stop, its health-check node ports close at once, and not with the last connection", {
  skip: kernelSkip,
}, async (t) => {
  const spec = { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 32001 };
  const endpoints = [{ addresses: ["10.180.0.21"], conditions: { ready: true }, nodeName: nodeA.name }];
  const objects = [service("web", WEB, spec), slice("web", [], { endpoints })];
  const { topology, daemon } = await scene(t, objects, { drainTimeout: "60s" });
  const source = await streamingPod(topology);
  const sink = await ByteStream.sink(topology.namespace(clientPod.name), WEB, 80);
  await sink.flows();
  const health = () => daemon.fetch("http://127.0.0.1:32001/");
  await daemon.until("the health check", async () => (await health()).status === 200);
  const ended = daemon.stop("SIGTERM");
  await daemon.until("it waits", () => daemon.log.includes("Waiting for connections to end"));
  assert.match((await health()).body, /ECONNREFUSED/);
  await sink.flows();
  source.kill();
  assert.equal(await ended, 0);
});

test("userspace: told to stop, it ends with the last connection", { skip: kernelSkip }, async (t) => {
  const { topology, daemon } = await scene(t, web(["10.180.0.21"]), { drainTimeout: "60s" });
  const source = await streamingPod(topology);
  const sink = await ByteStream.sink(topology.namespace(clientPod.name), WEB, 80);
  await sink.flows();
  const ended = daemon.stop("SIGTERM");
  await daemon.until("it waits", () => daemon.log.includes("Waiting for connections to end"));
  source.kill();
  assert.equal(await ended, 0);
  await sink.ended();
});

test("userspace: UDP sessions end when nothing happens in them", { skip: kernelSkip }, async (t) => {
  const ports = [{ name: "http", port: 80, protocol: "UDP" }];
  const objects = [
    service("dns", WEB, { ports }),
    slice("dns", [webPod.ipv4], { ports: [{ name: "http", port: PORT, protocol: "UDP" }] }),
  ];
  const { daemon, pod } = await scene(t, objects);
  const answers = await pod.connect({ ...toWeb, protocol: "UDP", count: 20 });
  assert.deepEqual([...new Set(answers.map((answer) => answer.ok && answer.pod))], ["web-1"]);
  await counted(daemon, "connections_total", "udp", 20);
  await daemon.until("sessions end", async () => (await daemon.metric(series("active_connections", "udp"))) === 0);
});

test("userspace: a pod whose link has no address on the node is served, as are the node's other clients", {
  skip: kernelSkip,
}, async (t) => {
  const clusterIPs = [WEB, "fd00:10:96::1"];
  const ports = [
    { name: "http", port: 80, protocol: "TCP", nodePort: 30080 },
    { name: "dns", port: 80, protocol: "UDP", nodePort: 30080 },
  ];
  const slicePorts = ports.map(({ name, protocol }) => ({ name, port: PORT, protocol }));
  const ipv6 = { addressType: "IPv6", metadata: { ...slice("web", []).metadata, name: "web-6" } };
  const objects = [
    service("web", WEB, { type: "NodePort", clusterIPs, ipFamilies: ["IPv4", "IPv6"], ports }),
    slice("web", [webPod.ipv4], { ports: slicePorts }),
    slice("web", [webPod.ipv6], { ...ipv6, ports: slicePorts }),
  ];
  const { topology, daemon, pod, outside } = await scene(t, objects);
  await daemon.synced();
  const node = probersFor(topology, [nodeA.name])[nodeA.name] as Prober;
  const clients = { calico: await addPointToPointPod(topology), pod, outside, node };
  const met: Record<string, readonly string[]> = {};
  for (const [client, prober] of Object.entries(clients)) {
    for (const [address, port] of [
      [WEB, 80],
      ["fd00:10:96::1", 80],
      ["10.200.0.2", 30080],
      ["fd00:200::2", 30080],
      ...(client === "node" ? ([["127.0.0.1", 30080]] as const) : ([["10.180.0.1", 30080]] as const)),
    ] as const) {
      for (const protocol of ["TCP", "UDP"] as const) {
        const answers = await prober.connect({ protocol, address, port, timeoutMs: 3000 });
        met[`${client} ${protocol} ${address}`] = answers.map((answer) => (answer.ok ? answer.pod : answer.error));
      }
    }
  }
  assert.deepEqual(met, Object.fromEntries(Object.keys(met).map((asked) => [asked, ["web-1"]])));
});

test("userspace: when the address that its sockets have goes, they move to another of the host", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, daemon, pod } = await scene(t, web([webPod.ipv4]));
  const sees = async () => outcomes(await pod.connect({ ...toWeb, timeoutMs: 1000 }));
  assert.match((await sees())[0] ?? "", /^web-1/);
  const node = topology.namespace(nodeA.name);
  await node.configure(["addr del 10.200.0.2/24 dev eth0"]);
  await daemon.until("the pod is served again", async () => (await sees())[0]?.startsWith("web-1") === true);
  assert.doesNotMatch(await daemon.saved("iptables-save"), /10\.200\.0\.2:/);
});

test("userspace without rules: addresses of this host and node ports are served, and nothing is in the kernel", {
  skip: kernelSkip,
}, async (t) => {
  const clusterIPs = [WEB, "fd00:10:96::1"];
  const ports = [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }];
  const spec = { type: "NodePort", clusterIPs, ipFamilies: ["IPv4", "IPv6"], ports };
  const udpPorts = [{ name: "dns", port: 53, protocol: "UDP", nodePort: 30053 }];
  const objects = [
    service("dns", "10.96.0.2", { type: "NodePort", ports: udpPorts }),
    slice("dns", [webPod.ipv4], { ports: [{ name: "dns", port: PORT, protocol: "UDP" }] }),
    service("web", WEB, spec),
    slice("web", [webPod.ipv4]),
    slice("web", [webPod.ipv6], { addressType: "IPv6", metadata: { ...slice("web", []).metadata, name: "web-6" } }),
  ];
  const { topology, daemon, outside, pod } = await scene(t, objects, { rules: "none" });
  const node = topology.namespace(nodeA.name);
  const met = async (address: string, port: number) =>
    outcomes(await outside.connect({ protocol: "TCP", address, port, timeoutMs: 1000 })).map(
      (text) => text.split(" ")[0],
    );
  assert.deepEqual(await met("10.200.0.2", 30080), ["web-1"]);
  assert.deepEqual(await met("fd00:200::2", 30080), ["web-1"]);
  assert.deepEqual(await met(WEB, 80), ["timeout"]);
  // The route to the pod prefers another address of the node, from which the client would accept no answer.
  const [answer] = await pod.connect({ protocol: "UDP", address: "10.200.0.2", port: 30053, timeoutMs: 8000 });
  assert.equal(answer?.ok && answer.pod, "web-1", `${JSON.stringify(answer)}\n${daemon.log}`);
  await node.configure([`addr add ${WEB}/32 dev lo`, "addr add fd00:10:96::1/128 dev lo nodad"]);
  for (const address of clusterIPs) {
    await daemon.until(`${address} is served`, async () => (await met(address, 80))[0] === "web-1");
  }
  await node.configure([`addr del ${WEB}/32 dev lo`]);
  await daemon.until(
    "the address is given up",
    async () => (await node.exec(["ss", "-ltn"])).stdout.indexOf(`${WEB}:80`) < 0,
  );
  assert.doesNotMatch(await daemon.saved("iptables-save"), /KUBE/);
  assert.doesNotMatch((await node.exec(["nft", "list", "ruleset"])).stdout, /KUBE|kube/);
});
