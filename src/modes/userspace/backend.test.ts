/** The userspace mode with rules: what it opens, what leads there, and what it leaves alone. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { ip } from "../../model/testing/records.ts";
import { BackendRig, proxyPortOf } from "./testing/backend-rig.ts";

const NOTHING = { failures: [] };

/** The outcome without `written`, which the contract of all modes tests. */
async function outcomeOf(rig: BackendRig, ...options: Parameters<BackendRig["sync"]>): Promise<object> {
  const { written: _written, ...outcome } = await rig.sync(...options);
  return outcome;
}

test("a service port gets a socket, and rules that lead there", async () => {
  const rig = new BackendRig();
  rig.set("web", { nodePort: 30080 });
  assert.deepEqual(await outcomeOf(rig), NOTHING);
  assert.deepEqual(rig.openSockets, ["held TCP 0.0.0.0:30080", "listening TCP 0.0.0.0:32768"]);
  assert.deepEqual(rig.portalRules, [
    "KUBE-NODEPORT-CONTAINER -p tcp --dport 30080 -j REDIRECT --to-ports 32768",
    "KUBE-NODEPORT-HOST -p tcp --dport 30080 -j DNAT --to-destination 192.168.1.5:32768",
    "KUBE-NODEPORT-NON-LOCAL -p tcp --dport 32768 -m state --state NEW -j ACCEPT",
    "KUBE-PORTALS-CONTAINER -d 172.16.0.1/32 -p tcp --dport 80 -j REDIRECT --to-ports 32768",
    "KUBE-PORTALS-HOST -d 172.16.0.1/32 -p tcp --dport 80 -j DNAT --to-destination 192.168.1.5:32768",
  ]);
  assert.equal(rig.connect("TCP", "0.0.0.0", 32768), "10.0.0.1");
});

test("a sync in which nothing changed sends nothing", async () => {
  const rig = new BackendRig();
  rig.set("web");
  await rig.sync();
  const { restoreCount } = rig.iptables;
  await rig.sync();
  assert.equal(rig.iptables.restoreCount, restoreCount);
});

test("endpoints come and go without the rules being touched", async () => {
  const rig = new BackendRig();
  rig.set("web");
  await rig.sync();
  const { restoreCount } = rig.iptables;
  rig.set("web", {}, ["10.0.0.7"]);
  await rig.sync();
  assert.equal(rig.connect("TCP", "0.0.0.0", 32768), "10.0.0.7");
  assert.equal(rig.iptables.restoreCount, restoreCount);
});

test("with its last endpoint a service is refused, and its socket waits for the next one", async () => {
  const rig = new BackendRig();
  const key = rig.set("web");
  await rig.sync();
  const served = rig.portalRules;
  rig.set("web", {}, []);
  await rig.sync();
  assert.deepEqual(rig.portalRules, [
    "KUBE-PORTALS-UNSERVED -d 172.16.0.1/32 -p tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable",
  ]);
  assert.equal(rig.connect("TCP", "0.0.0.0", 32768), undefined);
  assert.equal(rig.counts["refused TCP"], 1);
  rig.set("web", {}, ["10.0.0.7"]);
  await rig.sync();
  assert.deepEqual(rig.portalRules, served);
  assert.equal(rig.connect("TCP", "0.0.0.0", 32768), "10.0.0.7");
  rig.remove(key);
  await rig.sync();
  assert.deepEqual(rig.portalRules, []);
});

test("only a change of the service's own affinity timeout reaches the balancer, and touches nothing else", async () => {
  const rig = new BackendRig();
  const sticky = (stickyMaxAgeSeconds: number) => ({ sessionAffinity: "ClientIP" as const, stickyMaxAgeSeconds });
  rig.set("web", sticky(100), ["10.0.0.1", "10.0.0.2"]);
  await rig.sync();
  const { restoreCount } = rig.iptables;
  const first = rig.connect("TCP", "0.0.0.0", 32768);
  assert.equal(rig.connect("TCP", "0.0.0.0", 32768), first);
  rig.set("web", sticky(5), ["10.0.0.1", "10.0.0.2"]);
  await rig.sync();
  await rig.clock.advance(6000);
  assert.notEqual(rig.connect("TCP", "0.0.0.0", 32768), first);
  assert.equal(rig.iptables.restoreCount, restoreCount);
});

test("a service whose addresses change keeps its socket and its connections", async () => {
  const rig = new BackendRig();
  rig.set("web", { nodePort: 30080 });
  await rig.sync();
  rig.connect("TCP", "0.0.0.0", 32768);
  rig.set("web", { nodePort: 30090, port: 81 });
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["held TCP 0.0.0.0:30090", "listening TCP 0.0.0.0:32768"]);
  assert.equal(proxyPortOf(rig, "172.16.0.1", 81), 32768);
  assert.equal(proxyPortOf(rig, "172.16.0.1", 80), undefined);
  assert.equal(rig.sockets.connections, 1);
});

test("a removed service loses rules and sockets, and its connections go on", async () => {
  const rig = new BackendRig();
  const key = rig.set("web", { nodePort: 30080 });
  rig.set("other", { clusterIP: ip("172.16.0.2") });
  await rig.sync();
  const port = proxyPortOf(rig, "172.16.0.1", 80) ?? 0;
  rig.connect("TCP", "0.0.0.0", port);
  rig.remove(key);
  assert.deepEqual(await outcomeOf(rig), NOTHING);
  assert.deepEqual(
    rig.portalRules.filter((rule) => !rule.includes("172.16.0.2")),
    [],
  );
  assert.equal(rig.openSockets.length, 1);
  assert.equal(rig.sockets.connections, 1);
});

test("a service that comes back finds its endpoints, though they never changed (userspace.md §1.7)", async () => {
  const rig = new BackendRig();
  const key = rig.set("web");
  await rig.sync();
  const { cluster } = rig;
  const port = cluster.declared.get(key);
  assert.ok(port !== undefined);
  const endpoints = cluster.endpoints.get(key) ?? [];
  cluster.delete(port);
  cluster.setEndpoints(port, endpoints);
  await rig.sync({ full: true });
  assert.equal(proxyPortOf(rig, "172.16.0.1", 80), undefined);
  cluster.set(port);
  await rig.sync({ full: true });
  assert.equal(rig.connect("TCP", "0.0.0.0", proxyPortOf(rig, "172.16.0.1", 80) ?? 0), "10.0.0.1");
});

test("addresses of this host are held, also when the host gets them later", async () => {
  const rig = new BackendRig();
  rig.set("web", { externalIPs: [ip("203.0.113.5")], loadBalancerVIPs: [ip("203.0.113.5"), ip("198.51.100.5")] });
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["listening TCP 0.0.0.0:32768"]);
  rig.hostAddresses = [...rig.hostAddresses, "203.0.113.5"];
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["held TCP 203.0.113.5:80", "listening TCP 0.0.0.0:32768"]);
  rig.hostAddresses = ["127.0.0.1"];
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["listening TCP 0.0.0.0:32768"]);
});

test("rules of an earlier run go before anything else is known (userspace.md §1.6)", async () => {
  const iptables = new MemoryIptables("IPv4");
  const before = new BackendRig({ iptables });
  before.set("web");
  await before.sync();
  const rig = new BackendRig({ iptables });
  await rig.rules.start();
  assert.deepEqual(rig.portalRules, []);
  assert.match(rig.iptables.dump("nat"), /-A PREROUTING .* -j KUBE-PORTALS-CONTAINER\n/);
});

test("damage is noticed at the next check, and mended by a full sync", async () => {
  const rig = new BackendRig();
  rig.set("web", { nodePort: 30080 });
  await rig.sync();
  const whole = rig.iptables.dump("nat") + rig.iptables.dump("filter");
  let lost = 0;
  const stop = new AbortController();
  const watching = rig.backend.monitor(
    () => void lost++,
    stop.signal,
    () => {},
  );
  await rig.clock.advance(61_000);
  assert.equal(lost, 0);
  const damages = [
    () => rig.iptables.restore(["*nat\n-F KUBE-PORTALS-HOST\nCOMMIT\n"]),
    () => rig.iptables.restore(["*nat\n-D PREROUTING 1\nCOMMIT\n"]),
    () => rig.iptables.restore(["*filter\n-A KUBE-NODEPORT-NON-LOCAL -s 10.9.9.9 -j ACCEPT\nCOMMIT\n"]),
    async () => rig.iptables.flush("nat", { deleteChains: true }),
  ];
  for (const [index, damage] of damages.entries()) {
    await damage();
    await rig.clock.advance(30_000);
    assert.equal(lost, index + 1, `damage ${index}`);
    await rig.sync({ full: true });
    assert.equal(rig.iptables.dump("nat") + rig.iptables.dump("filter"), whole, `damage ${index}`);
    await rig.clock.advance(30_000);
    assert.equal(lost, index + 1);
  }
  stop.abort();
  await watching;
});

test("UDP flows that lead elsewhere are ended when the service comes, changes or goes; others are left", async () => {
  const rig = new BackendRig();
  const flow = (destination: string, replyPort: number, sourcePort: number) => ({
    protocol: "UDP" as const,
    sourceIP: ip("172.16.9.9"),
    sourcePort,
    destinationIP: ip(destination),
    destinationPort: 53,
    replySourceIP: ip("192.168.1.5"),
    replySourcePort: replyPort,
    replyDestinationIP: ip("172.16.9.9"),
    replyDestinationPort: sourcePort,
  });
  const fromEarlierRun = flow("172.16.0.1", 39999, 1);
  const foreign = flow("172.16.0.77", 39999, 2);
  const live = flow("172.16.0.1", 32768, 3);
  for (const one of [fromEarlierRun, foreign, live]) rig.conntrack.add(one);
  const key = rig.set("dns", { protocol: "UDP", port: 53 });
  await rig.sync();
  assert.deepEqual(rig.conntrack.flows, [foreign, live]);
  rig.set("dns", { protocol: "UDP", port: 53 }, ["10.0.0.9"]);
  await rig.sync();
  assert.deepEqual(rig.conntrack.flows, [foreign, live]);
  rig.remove(key);
  await rig.sync();
  assert.deepEqual(rig.conntrack.flows, [foreign]);
});

test("UDP sessions end with their endpoint", async () => {
  const rig = new BackendRig();
  rig.set("dns", { protocol: "UDP" }, ["10.0.0.1"]);
  await rig.sync();
  rig.connect("UDP", "0.0.0.0", 32768);
  assert.equal(rig.sockets.connections, 1);
  rig.set("dns", { protocol: "UDP" }, ["10.0.0.2"]);
  await rig.sync();
  assert.equal(rig.sockets.connections, 0);
  assert.equal(rig.connect("UDP", "0.0.0.0", 32768), "10.0.0.2");
});

test("a change of the host's addresses asks for a sync", async () => {
  const rig = new BackendRig();
  await rig.sync();
  const stop = new AbortController();
  let asked = 0;
  const watching = rig.backend.monitor(
    () => assert.fail("nothing was lost"),
    stop.signal,
    () => void asked++,
  );
  rig.tellHostChanged();
  assert.equal(asked, 1);
  stop.abort();
  await watching;
});

test("while connections may end new clients are refused, and no other process gets them", async () => {
  const rig = new BackendRig();
  rig.set("web");
  await rig.sync();
  rig.connect("TCP", "0.0.0.0", 32768);
  await rig.listeners.stopAccepting();
  assert.deepEqual(rig.openSockets, ["held TCP 0.0.0.0:32768"]);
  assert.equal(proxyPortOf(rig, "172.16.0.1", 80), 32768);
  assert.equal(rig.sockets.connections, 1);
});

test("a stop leaves no socket and no rule that leads to one", async () => {
  const rig = new BackendRig();
  rig.set("web", { nodePort: 30080 });
  await rig.sync();
  rig.connect("TCP", "0.0.0.0", 32768);
  await rig.backend.close();
  assert.deepEqual([rig.openSockets, rig.portalRules, rig.sockets.connections], [[], [], 0]);
});

test("the connections that it carries are told by endpoint, for as long as they last", async () => {
  const rig = new BackendRig();
  const key = rig.set("web");
  await rig.sync();
  for (let client = 0; client < 3; client += 1) rig.connect("TCP", "0.0.0.0", 32768);
  const carried = rig.backend.openConnections(key);
  assert.equal(
    [...carried.values()].reduce((sum, count) => sum + count, 0),
    3,
  );
  assert.ok([...carried.keys()].every((text) => text.startsWith("10.0.0.")));
  assert.equal(rig.backend.openConnections("shop/other").size, 0);
});
