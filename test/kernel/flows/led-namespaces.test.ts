/** Whose sockets ebpf mode leads: those of the node and its pods, not of other containers, such as the nodes of a nested cluster. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { reasonToSkip } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import { type Prober, startProber } from "../../../testkit/net/namespace-prober.ts";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { startBackend } from "../../../testkit/net/pod-backend.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { clientPod, nodeA } from "../../../testkit/net/topology-spec.ts";
import { PATIENCE, stretched, until } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, outcomes } from "./asking.ts";
import { clusterOf, type ServiceSpec } from "./cluster-objects.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES } from "./modes.ts";

const web: ServiceSpec = { name: "web", number: 1, endpoints: ["remote-1"] };
const toWeb = addressOf(web.number, "external IP", "TCP", "IPv4");
/** The node's own address at its pods' bridge, which rules give to what they masquerade. */
const BY_RULES = ["remote-1 saw 10.200.0.2"];
const MACVLAN = "10.200.0.77";
/** Endpoints are compared with other namespaces' addresses every ten seconds. */
const ENDPOINTS_MS = stretched(20_000);

/** An endpoint of another Service on the node, which is no pod of its pod network. */
const onLan = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name: "lan-1", namespace: "flows", labels: { "kubernetes.io/service-name": "lan" } },
  addressType: "IPv4",
  ports: [{ name: "http", protocol: "TCP", port: 8080 }],
  endpoints: [{ addresses: [MACVLAN], nodeName: nodeA.name, conditions: { ready: true } }],
};
const lan = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "lan", namespace: "flows" },
  spec: { clusterIP: "10.96.1.50", ports: [{ name: "http", protocol: "TCP", port: 80, targetPort: 8080 }] },
};

test("ebpf: pods are led, and other containers take the rules", {
  skip: kernelSkip || reasonToSkip() || (ALL_MODES.includes("ebpf") ? false : "another run has the eBPF mode"),
  timeout: 600_000 * PATIENCE,
}, async (t) => {
  const network = await flowNetwork(t, "ebpf", [web]);
  const { topology, probers, daemon, cgroup } = network;
  const node = topology.namespace(nodeA.name);
  const made: NetworkNamespace[] = [];
  t.after(() => NetworkNamespace.removeAll(made));
  const create = async (name: string, lines: readonly string[] = []): Promise<NetworkNamespace> => {
    const namespace = await NetworkNamespace.create(newRunName(name));
    made.push(namespace);
    if (lines.length > 0) await namespace.configure(lines);
    return namespace;
  };
  const seen = async (prober: Prober): Promise<readonly string[]> => outcomes(await ask(prober, toWeb));
  const becomes = (what: string, prober: Prober, wanted: readonly string[], limitMs = stretched(5_000)) =>
    until(what, async () => (await seen(prober)).join() === wanted.join(), { patienceMs: limitMs });
  const status = async (): Promise<string> => (await daemon.fetch("http://127.0.0.1:10256/healthz?verbose")).body;

  await t.test("the node and a pod", async () => {
    assert.deepEqual(await seen(probers.pod), [`remote-1 saw ${clientPod.ipv4}`]);
    assert.deepEqual(await seen(probers.node), BY_RULES, "it has that address itself");
    assert.match(await status(), /for the node and 3 pods/);
  });

  await t.test("a container of docker's, though it took an address of the pod network", async () => {
    const docker = await create("docker");
    await node.configure([
      "link add name docker0 type bridge",
      "link set docker0 up",
      "addr add 172.17.0.1/16 dev docker0",
      `link add vd0 master docker0 up type veth peer name eth0 netns ${docker.name}`,
    ]);
    const up = ["link set eth0 up", "addr add 172.17.0.2/16 dev eth0", "route add default via 172.17.0.1"];
    await docker.configure([...up, "addr add 10.180.0.99/32 dev eth0"]);
    const prober = startProber(docker, cgroup);
    assert.deepEqual(await seen(prober), BY_RULES);
    await until("its reason", async () =>
      /1 because the route to its address leaves by another device/.test(await status()),
    );
    assert.deepEqual(await seen(prober), BY_RULES);
    prober.close();
  });

  await t.test("a nested node with the same pod range, and its pod", async () => {
    const [kind, inner] = [await create("kind"), await create("inner")];
    await node.configure([
      `link add vk0 master docker0 up type veth peer name eth0 netns ${kind.name}`,
      "route add 10.180.0.200/32 via 172.17.0.3",
    ]);
    kind.sysctl({ "net.ipv4.ip_forward": 1 });
    await kind.configure([
      ...["link set eth0 up", "addr add 172.17.0.3/16 dev eth0", "route add default via 172.17.0.1"],
      `link add v0 up type veth peer name eth0 netns ${inner.name}`,
      "addr add 10.180.0.1/24 dev v0",
    ]);
    await inner.configure([
      ...["link set eth0 up", "addr add 10.180.0.200/24 dev eth0", "route add default via 10.180.0.1"],
    ]);
    // The nested cluster has another Service at the same address.
    await startBackend(kind, "nested").listen([{ protocol: "TCP", port: 8080 }]);
    const own = addressOf(web.number, "cluster IP", "TCP", "IPv4");
    const rule = `add table ip own; add chain ip own output { type nat hook output priority -100; }
      add rule ip own output ip daddr ${own.address} tcp dport ${own.port} dnat to 172.17.0.3:8080`;
    await kind.exec(["nft", rule]);
    const both = [startProber(kind, cgroup), startProber(inner, cgroup)];
    for (const prober of both) assert.deepEqual(await seen(prober), BY_RULES);
    await until("the reasons", async () =>
      /it has no address of a pod.*no device|no device.*no address of a pod/.test(await status()),
    );
    for (const prober of both) {
      assert.deepEqual(await seen(prober), BY_RULES);
    }
    const [nested] = both;
    assert.ok(nested !== undefined);
    assert.deepEqual(outcomes(await ask(nested, own, 20)), ["nested saw 172.17.0.3"]);
    for (const prober of both) prober.close();
  });

  await t.test("a pod on macvlan that is an endpoint, as no rule sees its packets", async () => {
    const pod = await create("macvlan");
    await node.configure([`link add link eth0 name net1 netns ${pod.name} type macvlan mode bridge`]);
    await pod.configure([
      "link set net1 up",
      `addr add ${MACVLAN}/24 dev net1`,
      "route add 10.180.1.0/24 via 10.200.0.3",
    ]);
    const prober = startProber(pod, cgroup);
    const [before] = await prober.connect({ ...toWeb, timeoutMs: 500 });
    assert.equal(before?.ok, false);
    daemon.writeObjects([...clusterOf([web]), lan, onLan]);
    await becomes("it is led", prober, [`remote-1 saw ${MACVLAN}`], ENDPOINTS_MS);
    prober.close();
  });

  await t.test("a namespace without any device, as unshare makes one in a pod", async () => {
    const apart = await create("unshared", ["route add default dev lo"]);
    const prober = startProber(apart, cgroup);
    await prober.connect({ ...toWeb, protocol: "UDP", count: 50, timeoutMs: 100 });
    await until("its reason", async () => /this node has no device to them/.test(await status()));
    assert.match(await status(), /connected UDP sockets: 0/);
    prober.close();
  });

  await t.test("a new pod, within a second, and one that comes back", async () => {
    for (const round of [1, 2]) {
      const ipv4 = "10.180.0.88";
      const pod = await topology.addPod({ name: `new-${round}`, node: nodeA.name, ipv4 });
      const prober = startProber(pod, cgroup);
      const startMs = performance.now();
      await becomes("it is led", prober, [`remote-1 saw ${ipv4}`]);
      const tookMs = performance.now() - startMs;
      t.diagnostic(`led ${tookMs.toFixed(0)} ms after its first question`);
      assert.ok(tookMs < stretched(1_500), `${tookMs} ms`);
      const pods = Number(/for the node and (\d+) pods/.exec(await status())?.[1]);
      prober.close();
      await pod.remove();
      await until("its end", async () => (await status()).includes(`for the node and ${pods - 1} pods`));
    }
  });
});
