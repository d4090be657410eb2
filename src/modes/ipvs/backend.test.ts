import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import type { SyncOutcome } from "../../contract/backend.ts";
import { readTable } from "../../kernel/iptables/parser/ruleset.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { ensureJumps } from "../shared/iptables-rules/ensure-jumps.ts";
import { JUMP_RULES as IPTABLES_JUMPS } from "../shared/iptables-rules/top-level-rules.ts";
import { JUMP_RULES } from "./plan-rules.ts";
import { type BackendRig, newModel, type TestModel, VERIFY_PERIOD_MS } from "./testing/backend-rig.ts";

const NOTHING_REFUSED = { failures: [] };
const withoutCounts = ({ failures }: SyncOutcome) => ({ failures });

/** Two Services, one of them with every kind of frontend. */
function smallCluster(): TestModel {
  const model = newModel();
  model.set(port("plain", "10.96.0.1"), [local("10.1.0.5"), remote("10.1.1.5")]);
  const everything = port("rich", "10.96.0.2", {
    externalIPs: [ip("198.51.100.1")],
    loadBalancerVIPs: [ip("203.0.113.1")],
    loadBalancerSourceRanges: ["198.18.0.0/15" as Cidr],
    nodePort: 30080,
    healthCheckNodePort: 32000,
    externalPolicyLocal: true,
    sessionAffinity: "ClientIP",
    stickyMaxAgeSeconds: 600,
  });
  model.set(everything, [local("10.1.0.6")]);
  return model;
}

/** The effects of a sync on the node: operations by kind, and restores. */
async function effectOf(rig: BackendRig, work: () => Promise<unknown>) {
  const { ipvs, ipset, iptables } = rig.node;
  ipvs.takeOperations();
  ipset.takeOperations();
  const restores = iptables.restoreCount;
  await work();
  return {
    ipvs: ipvs.takeOperations().map(({ kind }) => kind),
    ipset: ipset.takeOperations().map(({ kind, set }) => `${kind} ${set}`),
    restores: iptables.restoreCount - restores,
  };
}

const NO_EFFECT = { ipvs: [], ipset: [], restores: 0 };

test("the first sync leaves virtual servers, sets, addresses, jumps and rules", async () => {
  const { rig } = smallCluster();
  assert.deepEqual(withoutCounts(await rig.sync()), NOTHING_REFUSED);
  const { virtualServers, sets, addresses, nat, filter } = await rig.node.state();
  assert.deepEqual(virtualServers, {
    "10.96.0.1:80/TCP rr flags 0 timeout 0": ["10.1.0.5:8080 weight 1", "10.1.1.5:8080 weight 1"],
    "10.96.0.2:80/TCP rr flags 1 timeout 600": ["10.1.0.6:8080 weight 1"],
    "192.168.0.2:30080/TCP rr flags 1 timeout 600": ["10.1.0.6:8080 weight 1"],
    "198.51.100.1:80/TCP rr flags 1 timeout 600": ["10.1.0.6:8080 weight 1"],
    "203.0.113.1:80/TCP rr flags 1 timeout 600": ["10.1.0.6:8080 weight 1"],
  });
  assert.deepEqual(addresses, ["10.96.0.1", "10.96.0.2", "198.51.100.1", "203.0.113.1"]);
  assert.equal(Object.keys(sets).length, 17);
  assert.deepEqual(sets["KUBE-IPVS-IPS hash:ip IPv4"], addresses);
  assert.deepEqual(sets["KUBE-NODE-PORT-LOCAL-TCP bitmap:port -"], ["30080"]);
  for (const { table, rule } of JUMP_RULES) {
    const text = table === "nat" ? nat : filter;
    assert.match(text, new RegExp(`-A ${rule.chain} -m comment --comment "[^"]*" -j `));
  }
  const input = filter.split("\n").filter((line) => line.startsWith("-A INPUT"));
  assert.deepEqual(
    input.map((line) => line.replace(/.* /, "")),
    ["KUBE-IPVS-FILTER", "KUBE-PROXY-FIREWALL", "KUBE-NODE-PORT"],
  );
  assert.match(filter, /-A KUBE-IPVS-OUT-FILTER -s 203.0.113.1\/32 .* -j DROP/);
});

test("a clean node takes one look at the rules and one restore, a restart one look", async (t) => {
  const { rig } = smallCluster();
  const save = t.mock.method(rig.node.iptables, "save");
  assert.equal((await effectOf(rig, () => rig.sync())).restores, 1);
  assert.equal(save.mock.callCount(), 1);
  await rig.restart();
  assert.equal((await effectOf(rig, () => rig.sync())).restores, 0);
  assert.equal(save.mock.callCount(), 2);
});

test("an iptables that prints rules in other words is found out once, and then rules are counted", async (t) => {
  const { rig } = smallCluster();
  const { iptables } = rig.node;
  const { save } = iptables;
  t.mock.method(iptables, "save", async () => (await save.call(iptables)).replaceAll("-j MARK", "-j  MARK"));
  await rig.sync();
  rig.watch();
  const looked = async (): Promise<number> => (await effectOf(rig, () => rig.clock.advance(VERIFY_PERIOD_MS))).restores;
  assert.deepEqual([await looked(), await looked()], [1, 0]);
  assert.equal(rig.asked.repairs, 0);
  await iptables.restore(["*nat\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n"]);
  await looked();
  assert.equal(rig.asked.repairs, 1);
  await rig.close();
});

test("such an iptables gets other rules in a full sync, too, when there are as many of them", async (t) => {
  const model = newModel();
  const { rig } = model;
  const balancer = (address: string) =>
    port("lb", "10.96.0.2", {
      loadBalancerVIPs: [ip(address)],
      loadBalancerSourceRanges: ["198.18.0.0/15" as Cidr],
    });
  model.set(balancer("203.0.113.1"), [remote("10.1.1.5")]);
  const { iptables } = rig.node;
  const { save } = iptables;
  const otherwise = t.mock.method(iptables, "save", async () =>
    (await save.call(iptables)).replaceAll("-j MARK", "-j  MARK"),
  );
  await rig.sync();
  rig.watch();
  await rig.clock.advance(VERIFY_PERIOD_MS);
  model.set(balancer("203.0.113.2"));
  await rig.sync({ full: true });
  await rig.close();
  otherwise.mock.restore();
  assert.deepEqual(await rig.node.state(), await rig.fromNothing());
});

test("a restart with nothing changed writes nothing", async () => {
  const { rig } = smallCluster();
  await rig.sync();
  const before = await rig.node.state();
  await rig.restart();
  assert.deepEqual(await effectOf(rig, () => rig.sync()), NO_EFFECT);
  assert.deepEqual(await rig.node.state(), before);
});

test("a full sync with nothing changed writes nothing", async () => {
  const { rig } = smallCluster();
  await rig.sync();
  assert.deepEqual(await effectOf(rig, () => rig.sync({ full: true })), NO_EFFECT);
});

test("a sync says how many virtual servers it has written, and not how many there are", async () => {
  const model = smallCluster();
  const { rig } = model;
  const written = async (full: boolean) => (await rig.sync({ full })).written?.counts["virtual servers written"];
  assert.equal(await written(true), 5);
  assert.equal(await written(true), undefined);
  model.set(port("new", "10.96.0.9"), [remote("10.1.1.9")]);
  assert.equal(await written(true), 1);
  rig.node.ipvs.refuse(({ kind }) => (kind === "add-virtual-server" ? "EPERM" : undefined));
  model.set(port("refused", "10.96.0.10"));
  assert.equal(await written(false), undefined);
});

test("a sync without changes says nothing to anybody", async () => {
  const { rig } = smallCluster();
  await rig.sync();
  rig.node.takeCosts();
  await rig.sync();
  assert.deepEqual(rig.node.takeCosts(), { ipvs: 0, ipset: 0, links: 0, restores: 0 });
});

test("one added endpoint costs one message", async () => {
  const model = newModel();
  const service = port("a", "10.96.0.1");
  model.set(service, [remote("10.1.1.5")]);
  await model.rig.sync();
  model.rig.node.takeCosts();
  model.setEndpoints(service, [remote("10.1.1.5"), remote("10.1.1.6")]);
  await model.rig.sync();
  assert.deepEqual(model.rig.node.takeCosts(), { ipvs: 1, ipset: 0, links: 0, restores: 0 });
  assert.deepEqual(await model.rig.node.realServers("10.96.0.1:80/TCP"), [
    "10.1.1.5:8080 weight 1",
    "10.1.1.6:8080 weight 1",
  ]);
});

for (const [protocol, messages] of [
  ["UDP", 1],
  ["SCTP", 1],
  // Its connections must be read.
  ["TCP", 2],
] as const) {
  test(`one removed ${protocol} endpoint costs ${messages} message(s)`, async () => {
    const model = newModel();
    const service = port("a", "10.96.0.1", { protocol });
    model.set(service, [remote("10.1.1.5"), remote("10.1.1.6")]);
    await model.rig.sync();
    model.rig.node.takeCosts();
    model.setEndpoints(service, [remote("10.1.1.5")]);
    await model.rig.sync();
    assert.deepEqual(model.rig.node.takeCosts(), { ipvs: messages, ipset: 0, links: 0, restores: 0 });
    assert.deepEqual(await model.rig.node.realServers(`10.96.0.1:80/${protocol}`), ["10.1.1.5:8080 weight 1"]);
  });
}

test("a local endpoint has an entry of its own", async () => {
  const model = newModel();
  const service = port("a", "10.96.0.1");
  model.set(service, [local("10.1.0.5")]);
  await model.rig.sync();
  model.setEndpoints(service, [local("10.1.0.5"), local("10.1.0.6")]);
  const effect = await effectOf(model.rig, () => model.rig.sync());
  assert.deepEqual(effect, { ipvs: ["add-real-server"], ipset: ["add KUBE-LOOP-BACK"], restores: 0 });
});

test("a service more touches neither the others nor the rules", async () => {
  const model = smallCluster();
  await model.rig.sync();
  model.set(port("new", "10.96.0.9"), [remote("10.1.1.9")]);
  assert.deepEqual(await effectOf(model.rig, () => model.rig.sync()), {
    ipvs: ["add-virtual-server", "add-real-server"],
    ipset: ["add KUBE-CLUSTER-IP", "add KUBE-IPVS-IPS"],
    restores: 0,
  });
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("a service that goes takes everything along, and the rules that only it needed", async () => {
  const model = smallCluster();
  await model.rig.sync();
  const [, rich] = [...model.services.values()];
  assert.ok(rich !== undefined);
  model.delete(rich);
  const effect = await effectOf(model.rig, () => model.rig.sync());
  assert.equal(effect.restores, 1);
  assert.deepEqual(new Set(effect.ipvs), new Set(["delete-virtual-server"]));
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("the rules are written when a set gets its first entry, and not again", async () => {
  const model = smallCluster();
  await model.rig.sync();
  model.set(port("np1", "10.96.0.8", { nodePort: 30001, protocol: "UDP" }));
  assert.equal((await effectOf(model.rig, () => model.rig.sync())).restores, 1);
  model.set(port("np2", "10.96.0.9", { nodePort: 30002, protocol: "UDP" }));
  assert.equal((await effectOf(model.rig, () => model.rig.sync())).restores, 0);
});

test("another affinity timeout changes virtual servers in place", async () => {
  const model = newModel();
  const sticky = { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 600 } as const;
  model.set(port("a", "10.96.0.1", sticky), [remote("10.1.1.5")]);
  await model.rig.sync();
  model.set(port("a", "10.96.0.1", { ...sticky, stickyMaxAgeSeconds: 60 }));
  const effect = await effectOf(model.rig, () => model.rig.sync());
  assert.deepEqual(effect, { ipvs: ["update-virtual-server"], ipset: [], restores: 0 });
});

test("of two services with one external address the first by name answers, whichever came first", async () => {
  const model = newModel();
  const shared = { externalIPs: [ip("198.51.100.1")] };
  const [first, second] = [port("a", "10.96.0.1", shared), port("b", "10.96.0.2", shared)];
  model.set(second, [remote("10.1.1.6")]);
  await model.rig.sync();
  model.set(first, [remote("10.1.1.5")]);
  await model.rig.sync();
  assert.deepEqual(await model.rig.node.realServers("198.51.100.1:80/TCP"), ["10.1.1.5:8080 weight 1"]);
  model.delete(first);
  await model.rig.sync();
  assert.deepEqual(await model.rig.node.realServers("198.51.100.1:80/TCP"), ["10.1.1.6:8080 weight 1"]);
  assert.deepEqual((await model.rig.node.state()).addresses, ["10.96.0.2", "198.51.100.1"]);
});

test("an external IP does not take another service's cluster IP, nor its source ranges the load balancer's clients", async () => {
  const model = newModel();
  const taker = port("a", "10.96.0.1", {
    externalIPs: [ip("10.96.0.2")],
    loadBalancerVIPs: [ip("10.96.0.2")],
    loadBalancerSourceRanges: ["192.0.2.0/24" as Cidr],
  });
  const victim = port("b", "10.96.0.2");
  model.set(taker, [remote("10.1.1.5")]);
  await model.rig.sync();
  model.set(victim, [remote("10.1.1.6")]);
  await model.rig.sync();
  const { node } = model.rig;
  assert.deepEqual(await node.realServers("10.96.0.2:80/TCP"), ["10.1.1.6:8080 weight 1"]);
  const { sets } = await node.state();
  const firewall = Object.entries(sets).find(([title]) => title.startsWith("KUBE-LOAD-BALANCER-FW "));
  assert.deepEqual(firewall?.[1], []);
  model.delete(victim);
  await model.rig.sync();
  assert.deepEqual(await node.realServers("10.96.0.2:80/TCP"), ["10.1.1.5:8080 weight 1"]);
});

test("at an address of the node an external IP goes before a node port, with any names", async () => {
  const model = newModel();
  const address = ip("192.168.0.2");
  model.set(port("a", "10.96.0.1", { nodePort: 30080 }), [remote("10.1.1.5")]);
  model.set(port("b", "10.96.0.2", { port: 30080, externalIPs: [address] }), [remote("10.1.1.6")]);
  await model.rig.sync();
  assert.deepEqual(await model.rig.node.realServers(`${address}:30080/TCP`), ["10.1.1.6:8080 weight 1"]);
});

test("an address for two ports of one service stays while one of them is left", async () => {
  const model = newModel();
  const [tcp, udp] = [port("a", "10.96.0.1"), port("a", "10.96.0.1", { protocol: "UDP" })];
  model.set(tcp);
  model.set(udp);
  await model.rig.sync();
  model.delete(tcp);
  await model.rig.sync();
  assert.deepEqual((await model.rig.node.state()).addresses, ["10.96.0.1"]);
  model.delete(udp);
  await model.rig.sync();
  assert.deepEqual((await model.rig.node.state()).addresses, []);
});

test("a change of zone is a matter of a full sync, which changes what differs", async () => {
  const model = newModel();
  const [near, far] = [remote("10.1.1.5", { zoneHints: ["zone-1"] }), remote("10.1.1.6", { zoneHints: ["zone-2"] })];
  model.set(port("a", "10.96.0.1", { protocol: "UDP" }), [near, far]);
  model.rig.driver.zone = "zone-1";
  await model.rig.sync();
  assert.deepEqual(await model.rig.node.realServers("10.96.0.1:80/UDP"), ["10.1.1.5:8080 weight 1"]);
  model.rig.driver.zone = "zone-2";
  const effect = await effectOf(model.rig, () => model.rig.sync({ full: true }));
  assert.deepEqual(effect, { ipvs: ["add-real-server", "delete-real-server"], ipset: [], restores: 0 });
});

test("IPv6 has sets, rules and virtual servers of its own", async () => {
  const model = newModel({ family: "IPv6" });
  model.set(port("a", "fd00:96::1", { nodePort: 30080, protocol: "SCTP" }), [local("fd00:1::5")]);
  await model.rig.sync();
  const { virtualServers, addresses, sets } = await model.rig.node.state();
  assert.deepEqual(Object.keys(virtualServers), [
    "[fd00:200::2]:30080/SCTP rr flags 0 timeout 0",
    "[fd00:96::1]:80/SCTP rr flags 0 timeout 0",
  ]);
  assert.deepEqual(addresses, ["fd00:96::1"]);
  assert.deepEqual(sets["KUBE-6-NODE-PORT-SCTP-HASH hash:ip,port IPv6"], ["fd00:200::2,sctp:30080"]);
  await model.rig.restart();
  assert.deepEqual(await effectOf(model.rig, () => model.rig.sync()), NO_EFFECT);
});

test("a node that was in iptables mode loses its leftovers after the first sync, and nothing that is shared", async () => {
  const model = smallCluster();
  const { iptables } = model.rig.node;
  await ensureJumps(iptables, { filter: readTable(iptables.dump("filter"), "filter"), natChains: [] }, IPTABLES_JUMPS);
  await iptables.restore([
    "*filter\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j REJECT\nCOMMIT\n" +
      "*nat\n:KUBE-SVC-A - [0:0]\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-A\nCOMMIT\n",
  ]);
  assert.deepEqual(withoutCounts(await model.rig.sync()), NOTHING_REFUSED);
  const { nat, filter } = await model.rig.node.state();
  const fresh = await model.rig.fromNothing();
  const kubelets = /.*KUBE-FIREWALL.*\n/g;
  const sorted = (text: string) => text.replaceAll(kubelets, "").split("\n").sort();
  assert.deepEqual(sorted(nat), sorted(fresh.nat));
  assert.deepEqual(sorted(filter), sorted(fresh.filter));
});
