/** Input that the mode cannot handle as requested: each case is reported, and everything else works. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { MemoryIpvs } from "../../../testkit/fakes/ipvs/memory-ipvs.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { probeScheduler } from "./node-settings.ts";
import { type BackendRigOptions, newModel, type TestModel } from "./testing/backend-rig.ts";

const PLAIN = port("plain", "10.96.0.1");
const OTHER = port("other", "10.96.0.2");

function twoServices(options: BackendRigOptions = {}): TestModel {
  const model = newModel(options);
  model.set(PLAIN, [remote("10.1.1.5")]);
  model.set(OTHER, [remote("10.1.1.6")]);
  return model;
}

test("an unknown scheduler is refused with the name of its module", async () => {
  const ipvs = new MemoryIpvs();
  await assert.rejects(
    probeScheduler(ipvs, "best"),
    /no scheduler "best": load the module ip_vs_best or choose another/,
  );
  assert.deepEqual(await ipvs.virtualServers("IPv4"), []);
});

test("a known scheduler leaves nothing behind, nor does a run that was killed while it probed", async () => {
  const ipvs = new MemoryIpvs();
  await probeScheduler(ipvs, "wlc");
  const left = { address: ip("198.51.100.0"), protocol: "TCP", port: 20_000, scheduler: "rr" } as const;
  await ipvs.apply([{ kind: "add-virtual-server", virtualServer: { ...left, flags: 0, timeoutSeconds: 0 } }]);
  await probeScheduler(ipvs, "wlc");
  assert.deepEqual(await ipvs.virtualServers("IPv4"), []);
});

test("a scheduler that is in use is not probed", async () => {
  const ipvs = new MemoryIpvs();
  const virtualServer = { address: ip("10.96.0.1"), protocol: "TCP", port: 80, scheduler: "rr" } as const;
  await ipvs.apply([{ kind: "add-virtual-server", virtualServer: { ...virtualServer, flags: 0, timeoutSeconds: 0 } }]);
  ipvs.takeOperations();
  await probeScheduler(ipvs, "rr");
  assert.deepEqual(ipvs.takeOperations(), []);
});

test("excludeCIDRs that have a live service: it is served, its virtual servers stay when it goes, and that is said", async () => {
  const model = twoServices({ excludeCIDRs: ["10.96.0.0/31"] });
  await model.rig.sync();
  assert.deepEqual(await model.rig.node.realServers("10.96.0.1:80/TCP"), ["10.1.1.5:8080 weight 1"]);
  const said = model.rig.log.filter(({ message }) =>
    message.startsWith("excludeCIDRs contains addresses of a service"),
  );
  assert.deepEqual(
    said.map(({ level, facts }) => [level, facts]),
    [["warn", { servicePort: "ns/plain:p", addresses: "10.96.0.1" }]],
  );
  model.delete(PLAIN);
  model.delete(OTHER);
  await model.rig.sync();
  const { virtualServers, addresses } = await model.rig.node.state();
  assert.deepEqual(Object.keys(virtualServers), ["10.96.0.1:80/TCP rr flags 0 timeout 0"]);
  assert.deepEqual(addresses, [], "addresses are not excluded");
  await model.rig.sync({ full: true });
  assert.equal(Object.keys((await model.rig.node.state()).virtualServers).length, 1);
});

test("an external address of another device is served there and not bound; a cluster IP is bound, with a warning", async () => {
  const model = newModel();
  const { links } = model.rig.node;
  links.addForeignLink("nodelocaldns", "dummy");
  links.addForeignAddress("nodelocaldns", ip("10.96.0.1"), 32);
  links.addForeignAddress("eth0", ip("198.51.100.1"), 24);
  model.set(port("dns", "10.96.0.1", { externalIPs: [ip("198.51.100.1")] }), [remote("10.1.1.5")]);
  await model.rig.sync();
  assert.deepEqual((await model.rig.node.state()).addresses, ["10.96.0.1"]);
  assert.deepEqual(
    model.rig.log.map(({ level, message, facts }) => [level, message, facts]),
    [
      [
        "info",
        "External addresses of a service are on another device and are not bound to kube-ipvs0",
        { servicePort: "ns/dns:p", addresses: "198.51.100.1 on eth0" },
      ],
      [
        "warn",
        "The cluster IP of a service is on another device in addition to kube-ipvs0",
        { servicePort: "ns/dns:p", clusterIP: "10.96.0.1", device: "nodelocaldns" },
      ],
    ],
  );
  model.rig.log.length = 0;
  await model.rig.sync({ full: true });
  assert.deepEqual(model.rig.log, [], "said once");
});

test("an address that another device gets later is taken off kube-ipvs0", async (t) => {
  const model = newModel();
  t.after(() => model.rig.close());
  model.set(port("a", "10.96.0.1", { externalIPs: [ip("198.51.100.1")], nodePort: 30080 }), [remote("10.1.1.5")]);
  await model.rig.sync();
  model.rig.watch();
  await model.rig.clock.advance(1000);
  model.rig.node.links.addForeignAddress("eth0", ip("198.51.100.1"), 24);
  await model.rig.clock.advance(1000);
  assert.deepEqual(model.rig.asked, { repairs: 0, syncs: 1 });
  await model.rig.sync();
  const { addresses, virtualServers } = await model.rig.node.state();
  assert.deepEqual(addresses, ["10.96.0.1"]);
  assert.ok("198.51.100.1:30080/TCP rr flags 0 timeout 0" in virtualServers, "node ports answer there, too");
});

test("an IP set of the same name and another type is named, with what to do; the rest works, and heals", async () => {
  const model = twoServices();
  model.rig.node.ipset.createForeign("KUBE-CLUSTER-IP", "hash:mac", undefined);
  const { failures } = await model.rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["IP set KUBE-CLUSTER-IP"],
  );
  assert.match(
    failures[0]?.reason ?? "",
    /there is an IP set KUBE-CLUSTER-IP of type hash:mac, and it must be of type hash:ip,port \(IPv4\): .* delete it \(ipset destroy KUBE-CLUSTER-IP\)/,
  );
  assert.deepEqual(await model.rig.node.realServers("10.96.0.1:80/TCP"), ["10.1.1.5:8080 weight 1"]);
  const { filter } = await model.rig.node.state();
  assert.ok(filter.includes("KUBE-IPVS-FILTER") && !filter.includes("REJECT"));

  model.set(port("late", "10.96.0.3"), [remote("10.1.1.7")]);
  assert.equal((await model.rig.sync()).failures.length, 1);
  assert.deepEqual(await model.rig.node.realServers("10.96.0.3:80/TCP"), ["10.1.1.7:8080 weight 1"]);

  await model.rig.node.ipset.destroy("KUBE-CLUSTER-IP");
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("a set of the right type and the other family is another set, too", async () => {
  const model = twoServices();
  model.rig.node.ipset.createForeign("KUBE-LOOP-BACK", "hash:ip,port,ip", "IPv6");
  const { failures } = await model.rig.sync();
  assert.match(
    failures[0]?.reason ?? "",
    /of type hash:ip,port,ip \(IPv6\), and it must be of type hash:ip,port,ip \(IPv4\)/,
  );
});

test("one virtual server is refused: its service is named, the others are served, and it is tried again", async () => {
  const model = twoServices();
  const heal = model.rig.node.ipvs.refuse(({ virtualServer }) =>
    virtualServer.address === PLAIN.clusterIP ? "EPERM" : undefined,
  );
  const { failures } = await model.rig.sync();
  assert.deepEqual(failures, [
    {
      subject: "ns/plain:p",
      reason: "ipvs: cannot add virtual server 10.96.0.1:80/TCP: not permitted, this needs CAP_NET_ADMIN (EPERM)",
    },
  ]);
  assert.deepEqual(await model.rig.node.realServers("10.96.0.2:80/TCP"), ["10.1.1.6:8080 weight 1"]);
  assert.equal((await model.rig.sync()).failures.length, 1);
  assert.equal(model.rig.logged("error").length, 1, "said once");
  heal();
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("a deletion that is refused is tried again, too", async () => {
  const model = twoServices();
  await model.rig.sync();
  const heal = model.rig.node.ipvs.refuse(({ kind }) => (kind === "delete-virtual-server" ? "EBUSY" : undefined));
  model.delete(PLAIN);
  const { failures } = await model.rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["virtual server 10.96.0.1:80/TCP"],
  );
  heal();
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("an entry and an address are refused: the service is named, and mended when it can be", async () => {
  const model = twoServices();
  const heal = [
    model.rig.node.ipset.refuse(({ set }) => (set === "KUBE-CLUSTER-IP" ? "IPSET_ERR_HASH_FULL" : undefined)),
    model.rig.node.links.refuse(({ address }) => (address === OTHER.clusterIP ? "EPERM" : undefined)),
  ];
  const { failures } = await model.rig.sync();
  assert.deepEqual(failures.map(({ subject }) => subject).sort(), ["ns/other:p", "ns/plain:p"]);
  assert.match(failures[0]?.reason ?? "", /the set is full \(IPSET_ERR_HASH_FULL\)/);
  for (const end of heal) end();
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("iptables is locked: the rest is written, the failure is counted, and the rules follow", async () => {
  const model = twoServices();
  await model.rig.sync();
  model.rig.node.iptables.isLocked = true;
  model.set(port("np", "10.96.0.3", { nodePort: 30080 }), [remote("10.1.1.7")]);
  const { failures } = await model.rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["iptables rules of the ipvs mode"],
  );
  assert.equal(model.rig.metrics.restoreFailures, 1);
  assert.deepEqual(await model.rig.node.realServers("10.96.0.3:80/TCP"), ["10.1.1.7:8080 weight 1"]);
  model.rig.node.iptables.isLocked = false;
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
});

test("the kernel has no dummy devices", async () => {
  const model = twoServices();
  await model.rig.sync();
  model.rig.node.links.deleteForeignLink("kube-ipvs0");
  const refuse = model.rig.node.links.refuse(() => "ENODEV");
  model.set(port("late", "10.96.0.3"));
  const { failures } = await model.rig.sync();
  assert.match(failures[0]?.reason ?? "", /there is no such device/);
  refuse();
});

test("an external address that is the cluster IP of the same service is one virtual server", async () => {
  const model = newModel();
  const shared = { externalIPs: [ip("10.96.0.1")], externalPolicyLocal: true };
  model.set(port("a", "10.96.0.1", shared), [remote("10.1.1.5")]);
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.deepEqual(Object.keys((await model.rig.node.state()).virtualServers).length, 1);
});

test("excluded networks and source ranges are prefixes of either family", async () => {
  const model = twoServices({ excludeCIDRs: ["fd00::/8"] });
  const ranges = ["fd00::/8", "198.18.0.0/15"] as Cidr[];
  model.set(
    port("lb", "10.96.0.3", { loadBalancerVIPs: [ip("203.0.113.1")], loadBalancerSourceRanges: ranges.slice(1) }),
  );
  assert.deepEqual((await model.rig.sync()).failures, []);
});

/** What was said of external addresses at other nodes since the last look. */
function saidOfAddresses({ rig: { log } }: TestModel): unknown[] {
  return log.splice(0).flatMap(({ level, message, facts }) => {
    const [, what] =
      /^An external address of a service is (another Node's|another node's|in a network)/.exec(message) ?? [];
    return what === undefined ? [] : [[level, what, facts]];
  });
}

test("an external address that an endpoint on another node has is bound, as upstream does, with one warning for its Service", async () => {
  const model = newModel();
  const externalIPs = [ip("192.168.0.9"), ip("198.51.100.7")];
  model.set(port("web", "10.96.0.1", { externalIPs }), [remote("10.1.1.5")]);
  model.set(port("web", "10.96.0.1", { externalIPs, protocol: "UDP" }), [remote("10.1.1.5")]);
  model.set(port("exporter", "10.96.0.2"), [remote("192.168.0.9"), { ...remote("198.51.100.7"), isLocal: true }]);
  await model.rig.sync();
  assert.deepEqual((await model.rig.node.state()).addresses?.includes("192.168.0.9"), true);
  assert.deepEqual(saidOfAddresses(model), [["warn", "another node's", { service: "ns/web", address: "192.168.0.9" }]]);
  await model.rig.sync({ full: true });
  assert.deepEqual(saidOfAddresses(model), [], "said once");
});

test("an external address in a network of this node is bound, with one warning, if the other Nodes are not known", async () => {
  const model = newModel();
  const { links } = model.rig.node;
  links.addForeignAddress("eth0", ip("10.0.7.4"), 24);
  links.addForeignAddress("eth0", ip("203.0.113.1"), 32);
  const loadBalancerVIPs = [ip("10.0.7.9"), ip("203.0.113.9")];
  model.set(port("web", "10.96.0.1", { loadBalancerVIPs, externalIPs: [ip("10.0.7.4")] }), [remote("10.1.1.5")]);
  await model.rig.sync();
  assert.deepEqual((await model.rig.node.state()).addresses, ["10.0.7.9", "10.96.0.1", "203.0.113.9"]);
  const said = [
    "warn",
    "in a network",
    { service: "ns/web", address: "10.0.7.9", network: "10.0.7.0/24", link: "eth0" },
  ];
  assert.deepEqual(saidOfAddresses(model), [said]);
  model.delete(port("web", "10.96.0.1"));
  await model.rig.sync();
  model.set(port("web", "10.96.0.1", { loadBalancerVIPs }), [remote("10.1.1.5")]);
  await model.rig.sync();
  assert.deepEqual(saidOfAddresses(model), [said], "a new Service of this name is another one");
});

test("an external address of another Node is left to it: not bound, and packets to it pass", async () => {
  const model = newModel();
  const addresses = { externalIPs: [ip("192.168.0.9")], loadBalancerVIPs: [ip("192.168.0.10"), ip("203.0.113.9")] };
  model.set(port("web", "10.96.0.1", { ...addresses, nodePort: 30080 }), [remote("10.1.1.5")]);
  model.rig.driver.otherNodes.set(ip("192.168.0.9"), "node-b").set(ip("192.168.0.10"), "node-c");
  await model.rig.sync();
  const { addresses: bound, virtualServers, sets } = await model.rig.node.state();
  assert.deepEqual(bound, ["10.96.0.1", "203.0.113.9"]);
  assert.doesNotMatch(JSON.stringify([virtualServers, sets]), /192\.168\.0\.(9|10)\b/);
  const said = (address: string, node: string) => ["warn", "another Node's", { service: "ns/web", address, node }];
  assert.deepEqual(saidOfAddresses(model), [said("192.168.0.9", "node-b"), said("192.168.0.10", "node-c")]);

  model.rig.driver.otherNodes.delete(ip("192.168.0.9"));
  await model.rig.sync({ full: true });
  assert.deepEqual((await model.rig.node.state()).addresses, ["10.96.0.1", "192.168.0.9", "203.0.113.9"]);
  assert.deepEqual(saidOfAddresses(model), []);
  model.rig.driver.otherNodes.set(ip("192.168.0.9"), "node-d");
  await model.rig.sync({ full: true });
  assert.deepEqual(await model.rig.node.state(), await model.rig.fromNothing());
  assert.deepEqual(saidOfAddresses(model), [said("192.168.0.9", "node-d")]);
});
