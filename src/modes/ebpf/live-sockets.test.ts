/** What inspection reports of the pinned maps: where they redirect connections, and how that differs from the plan. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { ip } from "../../model/testing/records.ts";
import type { IpAddress } from "../../net/ip.ts";
import { compareSockets } from "../../tools/explain/diff-sockets.ts";
import { walkDumps } from "../../trace/dump/walk-dumps.ts";
import { nodeFacts } from "../../trace/facts.ts";
import { newPacket } from "../../trace/packet.ts";
import { answerOf } from "../../trace/report/answer.ts";
import { decidedBy, ebpfSockets, wantedSockets } from "./live-sockets.ts";
import { frontendWords, leadingMaps } from "./socket-balancer/maps.ts";
import { PIN_FOLDER, PinnedNode } from "./testing/pinned-node.ts";

const endpointsOf = (...numbers: readonly number[]) => numbers.map((number) => remote(`10.180.1.${number}`));

async function scene(t: TestContext) {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  const sticky = { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 60 } as const;
  cluster.set(port("web", "10.96.0.1", { externalIPs: [ip("192.0.2.4")] }), endpointsOf(1, 2, 3));
  cluster.set(port("dns", "10.96.0.2", { nodePort: 30_053, protocol: "UDP", ...sticky }), endpointsOf(4));
  cluster.set(port("empty", "10.96.0.3"), []);
  // The rules decide at this address, which PinnedNode's host has.
  cluster.set(port("host", "10.96.0.4", { externalIPs: [ip("192.168.0.2")] }), endpointsOf(5));
  const proxy = node.start();
  await cluster.driver.sync(proxy.backend);
  const { pins } = memoryBpf(node.machine);
  const read = () => {
    const found = decidedBy(pins, PIN_FOLDER, "IPv4", { own: new Set(), nowNs: 0n });
    return found.ok ? found.sockets : undefined;
  };
  /** @param seconds from now. */
  const decided = (seconds: number) => {
    const nowNs = process.hrtime.bigint() + BigInt(seconds) * 1_000_000_000n;
    return decidedBy(pins, PIN_FOLDER, "IPv4", { own: new Set([ip("192.168.0.2"), ip("198.51.100.9")]), nowNs });
  };
  const wanted = () =>
    wantedSockets(
      { state: cluster, name: "node-a", zone: undefined },
      { masqueradeAll: false },
      new Set([ip("192.168.0.2")]),
    );
  const differences = () => {
    const owners = { family: "IPv4", ownerOf: () => "ns/owner:p" };
    return compareSockets(wanted(), read() ?? new Map(), owners).map(
      ({ state, name, servicePorts, missing, extra }) =>
        `${state} ${name} (${servicePorts}) -${missing.join(", ")} +${extra.join(", ")}`,
    );
  };
  return { node, cluster, process: proxy, read, decided, wanted, differences };
}

test("the pinned maps are read as they are wanted, beside the process and after its death, and nothing changes", async (t) => {
  const { node, process, read, wanted, differences } = await scene(t);
  const steps = process.steps.length;
  assert.deepEqual(differences(), []);
  const sockets = read();
  assert.deepEqual([...(sockets?.keys() ?? [])].sort(), [...wanted().keys()].sort());
  assert.equal(sockets?.get("UDP *:30053")?.clients, "none");
  assert.deepEqual(sockets?.get("UDP 10.96.0.2:80"), {
    clients: "all",
    isRefused: false,
    endpoints: ["10.180.1.4:8080"],
    affinitySeconds: 60,
  });
  assert.equal(sockets?.get("TCP 10.96.0.3:80")?.isRefused, true);
  assert.equal(sockets?.get("TCP 192.168.0.2:80")?.clients, "none");
  assert.equal(wanted().get("TCP 192.168.0.2:80")?.clients, "none");
  assert.equal(process.steps.length, steps);
  const leads = node.leads();
  process.kill();
  assert.deepEqual(differences(), []);
  assert.deepEqual(node.leads(), leads);
});

test("maps that no process has kept for long decide nothing, and that is said instead of where they lead", async (t) => {
  const { process: proxy, decided } = await scene(t);
  proxy.kill();
  assert.equal(decided(590).ok, true);
  const late = decided(610);
  assert.match(
    late.ok ? "" : late.reason,
    /^no process updates the maps in .* any more \(ebpf\.validFor\): all connections take the rules$/,
  );
});

test("maps whose programs are detached decide nothing", async (t) => {
  const { node, decided } = await scene(t);
  const { pins } = memoryBpf(node.machine);
  assert.equal(decided(0).ok, true);
  const folder = `${PIN_FOLDER}/IPv4/links`;
  for (const name of pins.list(folder) ?? []) pins.link(`${folder}/${name}`)?.close();
  const detached = decided(0);
  assert.match(detached.ok ? "" : detached.reason, /^no program in .* is attached: all connections take the rules$/);
});

test("the maps say which of the visible pods have their sockets redirected", async (t) => {
  const { node } = await scene(t);
  const { pins } = memoryBpf(node.machine);
  const others = [21n, 22n].map((cookie) => ({
    cookie,
    devices: [{ here: [], addresses: [ip(`10.180.0.${cookie}`)] }],
  }));
  const read = () => decidedBy(pins, PIN_FOLDER, "IPv4", { own: new Set(), nowNs: 0n, others });
  const [maps] = node.mapsAt("connect4");
  maps?.get("led_netns4")?.update(new Uint8Array(BigUint64Array.of(22n).buffer), new Uint8Array(8));
  const live = read();
  assert.ok(live.ok);
  const [notLed, led] = [ip("10.180.0.21"), ip("10.180.0.22")];
  assert.deepEqual(
    [live.ledPods, live.pods],
    [
      1,
      new Map([
        [notLed, false],
        [led, true],
      ]),
    ],
  );
});

test("node ports are led at the addresses that the maps have, and at no others of the host", async (t) => {
  const { cluster, process: proxy, decided } = await scene(t);
  cluster.set(port("np", "10.96.0.6", { nodePort: 30_080 }), endpointsOf(7));
  await cluster.driver.sync(proxy.backend);
  const live = decided(0);
  assert.ok(live.ok);
  assert.deepEqual(live.answering, ["192.168.0.2"]);
  const fatesAt = (address: string) => {
    const ends = {
      source: ip("192.168.0.2"),
      sourcePort: undefined,
      destination: ip(address),
      destinationPort: 30_080,
    };
    const packet = newPacket({ family: "IPv4", protocol: "tcp", inInterface: "", ...ends });
    const facts = nodeFacts({ addresses: [...live.own] });
    const root = walkDumps([ebpfSockets.chain(live)], packet, facts, { knowsClients: false, knowsDynamicSets: false });
    return answerOf(root)
      .groups.flatMap(({ shares }) => shares)
      .map(({ text }) => text);
  };
  assert.deepEqual(fatesAt("192.168.0.2"), ["sent to 10.180.1.7:8080, from 192.168.0.2 (kept)"]);
  assert.match(fatesAt("198.51.100.9").join(), /^delivered to a process of the node/);
});

test("what the maps have not got, have too much, or have otherwise is told with its Service", async (t) => {
  const { cluster, differences } = await scene(t);
  cluster.set(port("web", "10.96.0.1"), endpointsOf(1, 2, 9));
  cluster.set(port("new", "10.96.0.5"), endpointsOf(6));
  cluster.setEndpoints(port("empty", "10.96.0.3"), endpointsOf(7));
  cluster.set(port("dns", "10.96.0.2", { nodePort: 30_053, protocol: "UDP" }));
  assert.deepEqual(differences(), [
    "changed TCP 10.96.0.1:80 (ns/web:p) -leads to 10.180.1.9:8080 +leads to 10.180.1.3:8080",
    "changed TCP 10.96.0.3:80 (ns/empty:p) -leads to 10.180.1.7:8080 +has no endpoints",
    "missing TCP 10.96.0.5:80 (ns/new:p) -leads to 10.180.1.6:8080 +",
    "extra TCP 192.0.2.4:80 (ns/owner:p) - +leads to 10.180.1.1:8080, leads to 10.180.1.2:8080, leads to 10.180.1.3:8080",
    "changed UDP 10.96.0.2:80 (ns/dns:p) - +remembers clients for 60 s",
  ]);
});

test("an endpoint that belongs to another service port is not counted, and a flag of another version takes the rules", async (t) => {
  const { node, differences } = await scene(t);
  const { name } = leadingMaps("IPv4", { frontends: 1, slots: 1, backends: 1 }).frontends;
  const [frontends] = node.mapsAt("connect4").flatMap((maps) => maps.get(name) ?? []);
  const elements = [...(frontends?.entries() ?? [])].filter(([, value]) => frontendWords(value).count === 3);
  for (const [at, [key, value]] of elements.entries()) {
    const words = new Uint32Array(Uint8Array.from(value).buffer);
    if (at === 0) words[2] = 999;
    else words[3] = 1 << 20;
    frontends?.update(key, new Uint8Array(words.buffer));
  }
  assert.equal(elements.length, 2);
  const extras = differences().map((line) => line.replace(/^.*\+/, ""));
  assert.deepEqual(extras.sort(), ["leads nowhere", "takes the rules"]);
});

test("without pins, or with maps that are not whole, nothing is read", async (t) => {
  const { node, read, process } = await scene(t);
  const { pins } = memoryBpf(node.machine);
  const now = { own: new Set<IpAddress>(), nowNs: 0n };
  assert.equal(decidedBy(pins, "/bpf/kube-proxy-ts/2", "IPv4", now).ok, false);
  assert.equal(decidedBy(pins, PIN_FOLDER, "IPv6", now).ok, false);
  process.kill();
  memoryBpf(node.machine).pins.remove(`${PIN_FOLDER}/IPv4/v6/slots4`);
  assert.equal(read(), undefined);
});
