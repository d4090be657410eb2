/** What the eBPF backend adds in front of the packet path, and that service continues without it. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { local, port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { until } from "../../../testkit/support/patience.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { ip } from "../../model/testing/records.ts";
import { AT_SOCKET } from "./socket-news.ts";
import { type BpfFaults, CGROUP, EbpfRig, rig } from "./testing/ebpf-rig.ts";

const NO_SOCKETS = "Nothing is decided at the socket; the nftables rules handle all packets";

const attached = ({ bpf }: EbpfRig) =>
  ["connect4", "connect6"].map((hook) => bpf.attached(hook as "connect4", CGROUP).length);

test("programs decide for ten minutes after each look, and then all pass", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { isHurried: true });
  t.after(() => void subject.backend.close());
  cluster.set(port("dns", "10.96.0.1", { protocol: "UDP" }), [remote("10.180.1.1")]);
  await cluster.driver.sync(subject.backend);
  const led = () => subject.connectUdp(7n, "10.96.0.1", 80);
  assert.equal(led(), "10.180.1.1");
  subject.monotonicNs += 600_000_000_001n;
  assert.equal(led(), "10.96.0.1", "nothing has said that it lives");
  subject.watch(t);
  await until("the next look", () => led() === "10.180.1.1");
  subject.monotonicNs += 600_000_000_000n;
  assert.equal(led(), "10.180.1.1", "until the last moment, or it was looked again");
});

test("programs go on to decide where watching fails again and again, and is begun again each time", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  cluster.set(port("dns", "10.96.0.1", { protocol: "UDP" }), [remote("10.180.1.1")]);
  await sync();
  const failing = async () => Promise.reject(new Error("the rules cannot be watched"));
  Object.defineProperty(subject.packetPath.backend, "monitor", { value: failing });
  const { signal } = new AbortController();
  for (let minutes = 0; minutes <= 10; minutes++) {
    subject.monotonicNs += 60_000_000_001n;
    const watching = subject.backend.monitor(
      () => {},
      signal,
      () => {},
    );
    await assert.rejects(watching, /the rules cannot be watched/);
  }
  assert.equal(subject.connectUdp(7n, "10.96.0.1", 80), "10.180.1.1");
});

test("how long programs decide, and how many sockets there is room for, are settings", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { validForMs: 60_000, rememberedSockets: 2048 });
  t.after(() => void subject.backend.close());
  cluster.set(port("dns", "10.96.0.1", { protocol: "UDP" }), [remote("10.180.1.1")]);
  await cluster.driver.sync(subject.backend);
  const room = ["flows4", "connected4", "tcp_peers4", "clients4"].map((name) => subject.mapNamed(name)?.definition);
  assert.deepEqual(
    room.map((definition) => definition?.maxEntries),
    [2048, 2048, 2048, 2048],
  );
  subject.monotonicNs += 60_000_000_000n;
  assert.equal(subject.connectUdp(7n, "10.96.0.1", 80), "10.180.1.1");
  subject.monotonicNs += 1n;
  assert.equal(subject.connectUdp(7n, "10.96.0.1", 80), "10.96.0.1");
});

test("how long they decide may have a part of a millisecond", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { validForMs: 60_000.5 });
  t.after(() => void subject.backend.close());
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
  await cluster.driver.sync(subject.backend);
  subject.monotonicNs += 60_000_500_000n;
  assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.180.1.1");
  subject.monotonicNs += 1n;
  assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.96.0.1");
});

test("where the kernel cannot say what a call fails with, Services without endpoints take the rules, which is said", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  cluster.set(port("none", "10.96.0.1"), []);
  cluster.set(port("web", "10.96.0.2"), [remote("10.180.1.2")]);
  subject.machine.unknownHelpers.add("set_retval");
  await sync(true);
  await sync(true);
  assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.96.0.1");
  assert.equal(subject.connect("TCP", "10.96.0.2", 80), "10.180.1.2");
  const lines = subject.log.filter(({ message }) => /older than 5\.18/.test(message));
  assert.deepEqual([lines.length, lines[0]?.level], [1, "info"]);
  assert.match(subject.backend.remarks[0] ?? "", /decided at the socket.* older than 5\.18/);
  assert.deepEqual(subject.backend.degraded, []);
});

test("where it can, they are refused at the socket", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  cluster.set(port("none", "10.96.0.1"), []);
  await sync();
  assert.equal(subject.connect("TCP", "10.96.0.1", 80), "fails with -111");
  assert.equal(subject.connect("UDP", "10.96.0.1", 80), "10.96.0.1", "of UDP nothing is known there");
});

test("a frontend that another program has taken out of the map or changed is written again", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { isHurried: true });
  t.after(() => void subject.backend.close());
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
  cluster.set(port("api", "10.96.0.2"), [remote("10.180.1.2")]);
  await cluster.driver.sync(subject.backend);
  const map = subject.mapNamed("frontends4") ?? assert.fail("it has been made");
  const before = new Map(map.entries().map(([key, value]) => [Buffer.from(key).toString("hex"), value]));
  let lost = 0;
  subject.watch(t, () => void lost++);
  const [[first], [second, value]] = map.entries() as [[Uint8Array], [Uint8Array, Uint8Array]]; // the map has two
  map.delete(first);
  map.update(
    second,
    value.map((byte) => byte ^ 1),
  );
  const warning = () => subject.log.find(({ message }) => message.startsWith("Another program has changed the maps"));
  await until("the damage is seen", () => warning() !== undefined);
  assert.deepEqual([warning()?.facts, lost > 0], [{ servicePorts: 2 }, true]);
  await cluster.driver.sync(subject.backend, { full: true });
  assert.deepEqual(new Map(map.entries().map(([key, now]) => [Buffer.from(key).toString("hex"), now])), before);
});

test("when one watch fails, the others end with it", async (t) => {
  const { rig: subject } = rig(t);
  const failing = async () => Promise.reject(new Error("the rules cannot be watched"));
  Object.defineProperty(subject.packetPath.backend, "monitor", { value: failing });
  const watching = subject.backend.monitor(
    () => {},
    new AbortController().signal,
    () => {},
  );
  await assert.rejects(watching, /the rules cannot be watched/);
  assert.equal(subject.isWatching, false);
});

test("node ports at addresses for which the map has no room are left to the rules", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.hostAddresses = [ip("192.168.0.2"), ip("192.168.0.3")];
  subject.faults.update = (map) => (map === "node_addrs4" ? "E2BIG" : undefined);
  cluster.set(port("web", "10.96.0.1", { nodePort: 30_080 }), [remote("10.180.1.1")]);
  await sync();
  assert.ok(subject.backend.socketPath.isAttached);
  assert.deepEqual(
    subject.log.filter(({ level }) => level === "error"),
    [],
  );
});

describe("what is decided at the socket", () => {
  const pods = [local("10.180.0.10"), remote("10.180.1.11")];
  const both = "10.180.0.10 8080, 10.180.1.11 8080";
  const cases: readonly (readonly [string, ServicePort, readonly string[]])[] = [
    ["a cluster IP", port("web", "10.96.0.1"), [`TCP 10.96.0.1 80 cluster ${both}`]],
    [
      "a cluster IP with the Local policy",
      port("web", "10.96.0.1", { internalPolicyLocal: true }),
      ["TCP 10.96.0.1 80 local 10.180.0.10 8080"],
    ],
    [
      "external addresses",
      port("web", "10.96.0.1", { externalIPs: [ip("192.0.2.1")], loadBalancerVIPs: [ip("192.0.2.2")] }),
      [`TCP 10.96.0.1 80 cluster ${both}`, `TCP 192.0.2.1 80 cluster ${both}`, `TCP 192.0.2.2 80 cluster ${both}`],
    ],
    [
      "external addresses with the Local policy for the host alone: whom it binds in a container is a question of addresses",
      port("web", "10.96.0.1", {
        externalIPs: [ip("192.0.2.1")],
        externalPolicyLocal: true,
        internalPolicyLocal: true,
      }),
      ["TCP 10.96.0.1 80 local 10.180.0.10 8080", `TCP 192.0.2.1 80 cluster-for-host ${both}`],
    ],
    [
      "not an address with source ranges",
      port("web", "10.96.0.1", {
        externalIPs: [ip("192.0.2.1")],
        loadBalancerVIPs: [ip("192.0.2.2")],
        loadBalancerSourceRanges: ["10.0.0.0/8" as ServicePort["loadBalancerSourceRanges"][number]],
      }),
      [`TCP 10.96.0.1 80 cluster ${both}`, `TCP 192.0.2.1 80 cluster ${both}`],
    ],
    [
      "a node port, with session affinity",
      port("web", "10.96.0.1", { nodePort: 30_080, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 60 }),
      [`TCP * 30080 cluster ${both}`, `TCP 10.96.0.1 80 cluster ${both}`],
    ],
    [
      "an address that is the cluster IP and an external IP as the cluster IP that it is",
      port("web", "10.96.0.1", { externalIPs: [ip("10.96.0.1")], internalPolicyLocal: true }),
      ["TCP 10.96.0.1 80 local 10.180.0.10 8080"],
    ],
    ["UDP", port("web", "10.96.0.1", { protocol: "UDP" }), [`UDP 10.96.0.1 80 cluster ${both}`]],
    ["not SCTP", port("web", "10.96.0.1", { protocol: "SCTP" }), []],
  ];
  for (const [what, service, expected] of cases) {
    test(what, async (t) => {
      const { cluster, rig: subject, sync } = rig(t);
      cluster.set(service, pods);
      await sync();
      assert.deepEqual(subject.backend.socketPath.state, expected);
    });
  }

  test("a change writes what it changes, and asks nothing; the next full sync looks where programs are", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1"), remote("10.180.1.2")]);
    await sync();
    subject.takeMapWrites();
    subject.linkQuestions = 0;
    cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1"), remote("10.180.1.3")]);
    await sync();
    assert.deepEqual(subject.backend.socketPath.state, ["TCP 10.96.0.1 80 cluster 10.180.1.1 8080, 10.180.1.3 8080"]);
    assert.deepEqual([subject.takeMapWrites(), subject.linkQuestions], [0, 0], "it is stored in mapped memory");
    await sync(true);
    assert.ok(subject.linkQuestions > 0);
  });

  test("a service without endpoints is refused; one whose endpoints are all elsewhere passes", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(port("none", "10.96.0.1"), []);
    cluster.set(port("elsewhere", "10.96.0.2", { internalPolicyLocal: true }), [remote("10.180.1.11")]);
    await sync();
    assert.deepEqual(subject.backend.socketPath.state, ["TCP 10.96.0.1 80 refuse "]);
  });

  test("an address that the host has is left to what listens there, from the moment it has it", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    const asked = subject.watch(t);
    cluster.set(port("dns", "10.96.0.10"), pods);
    cluster.set(port("web", "10.96.0.1"), pods);
    await sync();
    subject.changeAddresses([ip("10.96.0.10"), ip("192.168.0.2")]);
    assert.equal(asked(), 1);
    await sync();
    assert.deepEqual(subject.backend.socketPath.state, [
      `TCP 10.96.0.1 80 cluster ${both}`,
      "TCP 10.96.0.10 80 leave ",
    ]);
    assert.equal(subject.connect("TCP", "10.96.0.10", 80), "10.96.0.10");
    subject.changeAddresses([]);
    await sync();
    assert.deepEqual(subject.backend.socketPath.state, [
      `TCP 10.96.0.1 80 cluster ${both}`,
      `TCP 10.96.0.10 80 cluster ${both}`,
    ]);
  });

  test("a frontend that goes from one service to another is never lost", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    const shared = { externalIPs: [ip("192.0.2.1")] };
    const loser = port("b", "10.96.0.2", shared);
    cluster.set(loser, [remote("10.180.1.2")]);
    await sync();
    cluster.set(port("a", "10.96.0.1", shared), [remote("10.180.1.1")]);
    await sync();
    assert.ok(subject.backend.socketPath.state.includes("TCP 192.0.2.1 80 cluster 10.180.1.1 8080"));
    cluster.delete(port("a", "10.96.0.1"));
    await sync();
    assert.ok(subject.backend.socketPath.state.includes("TCP 192.0.2.1 80 cluster 10.180.1.2 8080"));
  });

  test("maps grow with the cluster, and programs go on over the new ones", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(port("web", "10.96.0.1"), pods);
    await sync();
    const before = subject.bpf.attached("connect4", CGROUP);
    for (let number = 0; number < 1500; number++) {
      cluster.set(port(`s${number}`, `10.97.${number >> 8}.${number & 255}`), [remote("10.180.1.1")]);
    }
    await sync();
    assert.equal(subject.backend.socketPath.state.length, 1501);
    assert.deepEqual(attached(subject), [1, 1]);
    assert.notDeepEqual(subject.bpf.attached("connect4", CGROUP), before);
  });
});

describe("without the kernel's eBPF, packets are led all the same", () => {
  const faults: Readonly<Record<string, BpfFaults>> = {
    maps: { createMap: () => "EPERM" },
    "last map": { createMap: (name) => (name === "backends4" ? "ENOMEM" : undefined) },
    programs: { loadProgram: (name) => (name === "kpts_connect4m" ? "EINVAL" : undefined) },
    links: { attach: () => "EPERM" },
  };
  for (const [what, fault] of Object.entries(faults)) {
    test(`no ${what}`, async (t) => {
      const { cluster, rig: subject, sync } = rig(t);
      Object.assign(subject.faults, fault);
      cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
      for (let round = 0; round < 3; round++) assert.deepEqual((await sync(true)).failures, []);
      assert.deepEqual(
        subject.log.map(({ message }) => message),
        [NO_SOCKETS],
      );
      assert.deepEqual(attached(subject), [0, 0]);
      assert.ok(subject.packetPath.kernel.list().length > 0);
      for (const name of Object.keys(fault)) subject.faults[name as keyof BpfFaults] = undefined;
      cluster.set(port("late", "10.96.0.2"), [remote("10.180.1.2")]);
      await sync();
      assert.deepEqual(attached(subject), [0, 0], "tried with full syncs only");
      assert.equal(subject.metrics.attached, 0);
      await sync(true);
      assert.deepEqual(attached(subject), [1, 1]);
      assert.equal(subject.metrics.attached, 1);
      assert.equal(subject.backend.socketPath.state.length, 2);
    });
  }

  test("a service port that the maps do not take passes, is named once, and is tried again", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(port("good", "10.96.0.1"), [remote("10.180.1.1")]);
    await sync();
    subject.faults.update = (_, key) => (key[3] === 2 ? "ENOMEM" : undefined);
    cluster.set(port("bad", "10.96.0.2"), [remote("10.180.1.2")]);
    for (let round = 0; round < 2; round++) assert.deepEqual((await sync()).failures, []);
    assert.deepEqual(subject.backend.socketPath.state, ["TCP 10.96.0.1 80 cluster 10.180.1.1 8080"]);
    const lines = subject.log.filter(({ message }) => message === "Some service ports are not decided at the socket");
    assert.deepEqual(
      lines.map(({ facts }) => facts),
      [{ names: "ns/bad:p/TCP", cannot: `${AT_SOCKET} for some service ports` }],
    );
    assert.equal(subject.metrics.passedPorts, 1);
    subject.faults.update = undefined;
    await sync();
    assert.equal(subject.metrics.passedPorts, 0);
    assert.equal(subject.backend.socketPath.state.length, 2);
  });

  test("without a cgroup nothing is even tried", async (t) => {
    const cluster = new TestCluster();
    const subject = new EbpfRig(cluster.driver, { hasCgroup: false });
    t.after(() => void subject.backend.close());
    cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
    await cluster.driver.sync(subject.backend);
    assert.deepEqual([subject.takeMapWrites(), subject.backend.socketPath.state], [0, []]);
  });
});

describe("what status says", () => {
  test("where connections are decided, and how many", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    assert.deepEqual(subject.backend.remarks, ["nothing is decided at the socket: not synced yet"]);
    cluster.set(port("dns", "10.96.0.1", { protocol: "UDP", port: 53 }), [remote("10.180.1.1")]);
    await sync();
    subject.connectUdp(7n, "10.96.0.1", 53);
    const said = "decided at the socket in /cgroup for the node and no pod; service ports: 1, connected UDP sockets: 1";
    assert.equal(subject.backend.remarks[0], said);
    await subject.backend.close();
  });

  test("why nothing is decided there", async (t) => {
    const { rig: subject, sync } = rig(t);
    subject.faults.attach = () => "EPERM";
    await sync(true);
    assert.match(subject.backend.remarks.join(), /^nothing is decided at the socket: bpf: .*EPERM$/);
    assert.deepEqual(
      subject.backend.degraded.map(({ subject: what }) => what),
      ["nothing is decided at the socket"],
    );
    subject.faults.attach = undefined;
    await sync(true);
    assert.deepEqual(subject.backend.degraded, []);
  });

  test("what the rules have to say, too", async (t) => {
    const { rig: subject, sync } = rig(t);
    const remarks = ["Packets pass chains of other programs"];
    Object.defineProperty(subject.packetPath.backend, "remarks", { value: remarks });
    assert.deepEqual(subject.backend.remarks.slice(1), remarks);
    await sync();
    assert.deepEqual(subject.backend.remarks.slice(1), remarks);
  });

  test("what takes the rules though it should not, as long as it does", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    subject.watch(t);
    subject.obstacle = "no capability";
    subject.faults.update = (_, key) => (key[3] === 2 ? "ENOMEM" : undefined);
    cluster.set(port("good", "10.96.0.1"), [remote("10.180.1.1")]);
    cluster.set(port("bad", "10.96.0.2"), [remote("10.180.1.2")]);
    await sync();
    assert.deepEqual(subject.backend.degraded[0], {
      subject: "connected UDP takes the rules",
      reason: "no capability",
    });
    assert.match(subject.backend.remarks.at(-1) ?? "", /^service ports that take the rules: 1: bpf: .*ENOMEM$/);
    // The backend reloads the programs.
    subject.faults.update = () => "EPERM";
    subject.changeAddresses([ip("192.168.0.2")]);
    await sync(true);
    subject.faults.update = undefined;
    subject.obstacle = undefined;
    await sync(true);
    assert.deepEqual(subject.backend.degraded, []);
  });
});
