/** The userspace mode without rules: where it listens and where it does not. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";
import type { AddressAssigner, AssignmentOutcome } from "./netsh-assigner.ts";
import { BackendRig } from "./testing/backend-rig.ts";

test("service addresses of this host and node ports are listened on, other addresses are not", async () => {
  const rig = new BackendRig({ rules: "none" });
  rig.set("web", { nodePort: 30080, externalIPs: [ip("192.168.1.5")], loadBalancerVIPs: [ip("192.168.1.5")] });
  assert.deepEqual((await rig.sync()).failures, []);
  assert.deepEqual(rig.openSockets, ["listening TCP 0.0.0.0:30080", "listening TCP 192.168.1.5:80"]);
  assert.equal(rig.iptables.restoreCount, 0);
  assert.equal(rig.connect("TCP", "192.168.1.5", 80), "10.0.0.1");
});

test("addresses that the host gets and loses are followed", async () => {
  const rig = new BackendRig({ rules: "none" });
  rig.set("web");
  await rig.sync();
  assert.deepEqual(rig.openSockets, []);
  rig.hostAddresses = [...rig.hostAddresses, "172.16.0.1"];
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["listening TCP 172.16.0.1:80"]);
  rig.hostAddresses = ["127.0.0.1"];
  await rig.sync();
  assert.deepEqual(rig.openSockets, []);
});

test("a change touches only what it is about, and a removed service gives its ports back", async () => {
  const rig = new BackendRig({ rules: "none" });
  rig.hostAddresses = ["172.16.0.1"];
  const key = rig.set("web", { nodePort: 30080 });
  await rig.sync();
  rig.connect("TCP", "172.16.0.1", 80);
  rig.set("web", { nodePort: 30090 });
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["listening TCP 0.0.0.0:30090", "listening TCP 172.16.0.1:80"]);
  assert.equal(rig.sockets.connections, 1);
  rig.remove(key);
  await rig.sync();
  assert.deepEqual(rig.openSockets, []);
  assert.equal(rig.sockets.connections, 1);
});

test("UDP node ports have a socket for each address of the host, so that answers come from where clients asked", async () => {
  const assigner = new FakeAssigner();
  const rig = new BackendRig({ rules: "none", assigner });
  const key = rig.set("dns", { protocol: "UDP", nodePort: 30053 });
  await rig.sync();
  const own = "listening UDP 172.16.0.1:80";
  assert.deepEqual(rig.openSockets, ["listening UDP 127.0.0.1:30053", own, "listening UDP 192.168.1.5:30053"]);
  rig.hostAddresses = ["127.0.0.1", "192.168.1.6", "172.16.0.1"];
  await rig.sync();
  assert.deepEqual(assigner.assigned, ["172.16.0.1"]);
  assert.deepEqual(rig.openSockets, [
    "listening UDP 127.0.0.1:30053",
    "listening UDP 172.16.0.1:30053",
    own,
    "listening UDP 192.168.1.6:30053",
  ]);
  rig.remove(key);
  await rig.sync();
  assert.deepEqual([assigner.assigned, rig.openSockets], [[], []]);
});

test("node ports keep to the configured addresses", async () => {
  const rig = new BackendRig({ rules: "none", nodePortAddresses: ["192.168.0.0/16"] });
  rig.set("web", { nodePort: 30080 });
  await rig.sync();
  assert.deepEqual(rig.openSockets, ["listening TCP 192.168.1.5:30080"]);
});

test("who is not in the source ranges of a load balancer is sent away", async () => {
  const rig = new BackendRig({ rules: "none" });
  rig.hostAddresses = ["198.51.100.5"];
  rig.set("web", { loadBalancerVIPs: [ip("198.51.100.5")], loadBalancerSourceRanges: ["10.0.0.0/8" as Cidr] });
  await rig.sync();
  assert.equal(rig.connect("TCP", "198.51.100.5", 80, "10.1.2.3"), "10.0.0.1");
  assert.equal(rig.connect("TCP", "198.51.100.5", 80, "11.1.2.3"), undefined);
});

test("a port that another process has is named and tried again, and keeps no other address", async () => {
  const rig = new BackendRig({ rules: "none" });
  rig.hostAddresses = ["172.16.0.1"];
  const other = rig.relays.takePort("TCP", ip("172.16.0.1"), 80);
  rig.set("web", { nodePort: 30080 });
  const { failures } = await rig.sync();
  assert.deepEqual(failures, [
    { subject: "ns1/web:p", reason: "cannot listen on 172.16.0.1:80/TCP: the port is taken by another socket" },
  ]);
  assert.ok(rig.openSockets.includes("listening TCP 0.0.0.0:30080"));
  other[Symbol.dispose]();
  assert.deepEqual((await rig.sync()).failures, []);
});

/** Adds all wanted addresses except refused ones. */
class FakeAssigner implements AddressAssigner {
  assigned: readonly string[] = [];
  refused = new Set<string>();
  /** Addresses that another program removed. */
  readonly lost = new Set<IpAddress>();

  async update(wanted: ReadonlySet<IpAddress>): Promise<AssignmentOutcome> {
    const had = new Set(this.assigned);
    this.assigned = [...wanted].filter((address) => !this.refused.has(address)).sort();
    const added = [...wanted].filter((ip) => !this.refused.has(ip) && (!had.has(ip) || this.lost.has(ip)));
    for (const address of added) this.lost.delete(address);
    const refused = [...wanted]
      .filter((address) => this.refused.has(address))
      .map((address) => [address, "no"] as const);
    return { refused: new Map(refused), added: new Set(added) };
  }

  isIntact(): boolean {
    return this.lost.size === 0;
  }
}

test("an address that another program took away is had again, with new sockets for every service port there", async () => {
  const assigner = new FakeAssigner();
  const rig = new BackendRig({ rules: "none", assigner });
  rig.set("http", { port: 80 });
  rig.set("https", { port: 443 });
  await rig.sync();
  const socketAt = (port: number) => rig.relays.relayAt("TCP", ip("172.16.0.1"), port);
  const before = [socketAt(80), socketAt(443)];
  assert.equal(await rig.listeners.isIntact?.(), "present");
  assigner.lost.add(ip("172.16.0.1"));
  assert.equal(await rig.listeners.isIntact?.(), "absent");
  rig.set("http", { port: 80, externalIPs: [ip("192.168.1.5")] });
  await rig.sync();
  assert.equal(await rig.listeners.isIntact?.(), "present");
  for (const [index, port] of [80, 443].entries()) {
    assert.notEqual(socketAt(port), undefined);
    assert.notEqual(socketAt(port), before[index]);
  }
});

test("with an assigner the host gets the addresses, and loses one only when no port of any service wants it (userspace.md §2)", async () => {
  const assigner = new FakeAssigner();
  const rig = new BackendRig({ rules: "none", assigner });
  const http = rig.set("http", { port: 80 });
  const https = rig.set("https", { port: 443, nodePort: 30443 });
  await rig.sync();
  assert.deepEqual(assigner.assigned, ["172.16.0.1"]);
  assert.deepEqual(rig.openSockets, [
    "listening TCP 0.0.0.0:30443",
    "listening TCP 172.16.0.1:443",
    "listening TCP 172.16.0.1:80",
  ]);
  rig.remove(http);
  await rig.sync();
  assert.deepEqual(assigner.assigned, ["172.16.0.1"]);
  rig.remove(https);
  await rig.sync();
  assert.deepEqual([assigner.assigned, rig.openSockets], [[], []]);
});

test("an address that cannot be had is named, and the node port works (userspace.md §2)", async () => {
  const assigner = new FakeAssigner();
  assigner.refused.add("172.16.0.1");
  const rig = new BackendRig({ rules: "none", assigner });
  rig.set("web", { nodePort: 30080 });
  assert.deepEqual((await rig.sync()).failures, [{ subject: "ns1/web:p", reason: "172.16.0.1: no" }]);
  assert.deepEqual(rig.openSockets, ["listening TCP 0.0.0.0:30080"]);
});

test("a stop closes every socket and gives every address back", async () => {
  const assigner = new FakeAssigner();
  const rig = new BackendRig({ rules: "none", assigner });
  rig.set("web", { nodePort: 30080 });
  await rig.sync();
  await rig.backend.close();
  assert.deepEqual([assigner.assigned, rig.openSockets], [[], []]);
});

test("without endpoints there is no listener; a Local policy binds clients from outside, and not the node and its pods", async () => {
  const rig = new BackendRig({ rules: "none" });
  const local = { nodePort: 30080, externalPolicyLocal: true, isExternallyAccessible: true };
  const here = makeEndpoint("10.1.0.1", 8080, { isLocal: true });
  const elsewhere = makeEndpoint("10.1.1.1", 8080);
  const met = (client: string) =>
    new Set([1, 2, 3, 4].map(() => rig.connect("TCP", "0.0.0.0", 30080, client) ?? "sent away"));
  rig.set("web", local, []);
  await rig.sync();
  assert.deepEqual(rig.openSockets, []);
  rig.set("web", local, [here, elsewhere]);
  await rig.sync();
  assert.deepEqual(met("172.16.9.9"), new Set(["10.1.0.1"]));
  for (const inside of ["10.1.3.3", "192.168.1.5", "127.0.0.1"]) {
    assert.deepEqual(met(inside), new Set(["10.1.0.1", "10.1.1.1"]));
  }
  rig.set("web", local, [elsewhere]);
  await rig.sync();
  assert.deepEqual(met("172.16.9.9"), new Set(["sent away"]));
  assert.deepEqual(met("10.1.3.3"), new Set(["10.1.1.1"]));
});
