import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ip } from "../../model/testing/records.ts";
import { cleanUpIptables } from "../shared/iptables-rules/remove-rules.ts";
import { type CleanUpOptions, cleanUpIpvs } from "./cleanup.ts";
import { newModel } from "./testing/backend-rig.ts";
import { MemoryHost, MemoryNode } from "./testing/memory-node.ts";

/** A node after syncs of both families. */
async function dualStackNode() {
  const host = new MemoryHost();
  const ipv4 = newModel({ node: new MemoryNode("IPv4", host) });
  const ipv6 = newModel({ node: new MemoryNode("IPv6", host), family: "IPv6" });
  ipv4.set(port("a", "10.96.0.1", { nodePort: 30080 }), [local("10.1.0.5")]);
  ipv4.set(port("b", "10.96.0.2", { nodePort: 30081, protocol: "SCTP", externalIPs: [ip("192.168.0.2")] }));
  ipv6.set(port("a", "fd00:96::1", { nodePort: 30080, protocol: "UDP" }), [remote("fd00:1::5")]);
  await ipv4.rig.sync();
  await ipv6.rig.sync();
  const tables = [host.iptables.IPv4, host.iptables.IPv6] as const;
  return { node: host, tables, rigs: [ipv4.rig, ipv6.rig] };
}

function optionsFor(
  { ipvs, ipset, links }: Pick<MemoryHost, "ipvs" | "ipset" | "links">,
  iptables: readonly MemoryIptables[],
): CleanUpOptions {
  return { openIpvs: async () => ipvs, ipset, links, iptables: async () => iptables, log: silentLogger };
}

const EMPTY_TABLES = (family: "IPv4" | "IPv6") =>
  new MemoryIptables(family).dump("nat") + new MemoryIptables(family).dump("filter");

test("everything goes: both families' virtual servers, sets, rules, and the device", async () => {
  const { node, tables } = await dualStackNode();
  assert.ok(await cleanUpIpvs(optionsFor(node, tables)));
  assert.deepEqual([await node.ipvs.virtualServers("IPv4"), await node.ipvs.virtualServers("IPv6")], [[], []]);
  assert.deepEqual(await node.ipset.sets(), []);
  assert.equal(await node.links.link("kube-ipvs0"), undefined);
  for (const table of tables) assert.equal(table.dump("nat") + table.dump("filter"), EMPTY_TABLES(table.family));
});

test("virtual servers, sets and rules of others stay", async () => {
  const { node, tables } = await dualStackNode();
  const scheduler = { scheduler: "rr", flags: 0, timeoutSeconds: 0 } as const;
  const foreign = { address: ip("192.168.0.2"), protocol: "TCP", port: 443, ...scheduler } as const;
  // One of our node ports, but at an address that is not the node's.
  const elsewhere = { ...foreign, address: ip("203.0.113.9"), port: 30080 };
  for (const virtualServer of [foreign, elsewhere]) {
    await node.ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
  }
  await node.ipset.ensure({ name: "mine", type: "hash:ip", family: "IPv4" });
  await tables[0].restore(["*filter\n-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n"]);
  assert.ok(await cleanUpIpvs(optionsFor(node, tables)));
  assert.deepEqual(await node.ipvs.virtualServers("IPv4"), [foreign, elsewhere]);
  assert.deepEqual(
    (await node.ipset.sets()).map(({ name }) => name),
    ["mine"],
  );
  assert.equal(tables[0].rules("filter", "INPUT").length, 1);
});

test("where nothing of the mode is, nothing is touched, rules of the same names included", async () => {
  const node = new MemoryNode("IPv4");
  const virtualServer = { address: ip("192.168.0.2"), protocol: "TCP", port: 443, scheduler: "rr" } as const;
  await node.ipvs.apply([
    { kind: "add-virtual-server", virtualServer: { ...virtualServer, flags: 0, timeoutSeconds: 0 } },
  ]);
  await node.iptables.restore(["*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -s 10.0.0.1 -j RETURN\nCOMMIT\n"]);
  const before = await node.state();
  const openIpvs = () => assert.fail("IPVS was opened");
  assert.ok(await cleanUpIpvs({ ...optionsFor(node, [node.iptables]), openIpvs }));
  assert.deepEqual(await node.state(), before);
});

test("a kernel without IPVS is cleaned of the rest", async () => {
  const { node, tables } = await dualStackNode();
  assert.ok(await cleanUpIpvs({ ...optionsFor(node, tables), openIpvs: async () => undefined }));
  assert.deepEqual(await node.ipset.sets(), []);
});

test("a set that a foreign rule holds stays, is said, and stops nothing else", async () => {
  const { node, tables } = await dualStackNode();
  node.ipset.references.add("KUBE-CLUSTER-IP");
  const errors: string[] = [];
  const log = { ...silentLogger, error: (message: string, error: unknown) => void errors.push(`${message}: ${error}`) };
  assert.equal(await cleanUpIpvs({ ...optionsFor(node, tables), log }), false);
  assert.match(
    errors.join("\n"),
    /^Error cleaning up the ipvs mode: IP set KUBE-CLUSTER-IP: .*a rule or another set refers to it/,
  );
  assert.deepEqual(
    (await node.ipset.sets()).map(({ name }) => name),
    ["KUBE-CLUSTER-IP"],
  );
  assert.equal(await node.links.link("kube-ipvs0"), undefined);
});

test("a device of that name and another kind stays, and is said", async () => {
  const { node, tables } = await dualStackNode();
  await node.links.deleteDummy("kube-ipvs0");
  node.links.addForeignLink("kube-ipvs0", "bridge");
  assert.equal(await cleanUpIpvs(optionsFor(node, tables)), false);
  assert.notEqual(await node.links.link("kube-ipvs0"), undefined);
  assert.deepEqual(await node.ipset.sets(), []);
});

test("after cleaning up, the next sync makes everything again", async () => {
  const { node, tables, rigs } = await dualStackNode();
  await cleanUpIpvs(optionsFor(node, tables));
  for (const rig of rigs) assert.deepEqual((await rig.sync({ full: true })).failures, []);
  assert.equal((await node.ipset.sets()).length, 34);
});

test("chains that rules of the iptables mode hold are left empty, to go with those rules", async () => {
  const { node, tables } = await dualStackNode();
  const [ipv4] = tables;
  await ipv4.restore(["*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -j KUBE-MARK-MASQ\nCOMMIT\n"]);
  assert.ok(await cleanUpIpvs(optionsFor(node, tables)));
  assert.deepEqual(ipv4.rules("nat", "KUBE-MARK-MASQ"), []);
  assert.ok(await cleanUpIptables(ipv4, silentLogger));
  assert.equal(ipv4.dump("nat") + ipv4.dump("filter"), EMPTY_TABLES("IPv4"));
});
