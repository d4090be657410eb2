/** How the eBPF backend handles connected UDP sockets, which no program sees after connect(). */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { until } from "../../../testkit/support/patience.ts";
import { EbpfRig, rig } from "./testing/ebpf-rig.ts";

test("a sync does not wait for sockets that are disconnected", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  cluster.set(port("dns", "10.96.0.1", { protocol: "UDP" }), [remote("10.180.1.1")]);
  await sync();
  assert.equal(subject.connectUdp(7n, "10.96.0.1", 80), "10.180.1.1");
  const { promise, resolve } = Promise.withResolvers<void>();
  subject.disconnecting = promise;
  cluster.setEndpoints(port("dns", "10.96.0.1", { protocol: "UDP" }), [remote("10.180.1.2")]);
  await sync();
  assert.equal(subject.connectUdp(8n, "10.96.0.1", 80), "10.180.1.2");
  assert.deepEqual(subject.disconnections, []);
  resolve();
  await until("the end of the socket", () => subject.disconnections.length === 1);
});

describe("connected UDP", () => {
  const service = port("dns", "10.96.0.1", { protocol: "UDP", port: 53 });
  const connect = (subject: EbpfRig, cookie: bigint): string => subject.connectUdp(cookie, "10.96.0.1", 53);

  test("is disconnected when its endpoint goes, after the packet path has its rules", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(service, [remote("10.180.1.1")]);
    await sync();
    connect(subject, 7n);
    cluster.set(service, [remote("10.180.1.1"), remote("10.180.1.2")]);
    await sync();
    assert.deepEqual(subject.disconnections, []);
    cluster.set(service, [remote("10.180.1.2")]);
    await sync();
    assert.deepEqual(
      subject.disconnections.map(({ cookie, remote: to, remotePort }) => [cookie, to, remotePort]),
      [[7n, "10.180.1.1", 8080]],
    );
    assert.equal(subject.metrics.disconnected, 1);
    await sync(true);
    assert.equal(subject.disconnections.length, 1, "once");
  });

  test("is disconnected when its service goes, and when nothing is decided at the socket any more", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(service, [remote("10.180.1.1")]);
    await sync();
    connect(subject, 7n);
    cluster.delete(service);
    await sync();
    assert.equal(subject.disconnections.length, 1);
    cluster.set(service, [remote("10.180.1.1")]);
    await sync();
    connect(subject, 8n);
    await subject.backend.close();
    assert.equal(subject.disconnections.length, 2);
  });

  for (const [what, endpoint, other] of [
    ["terminates", { isReady: false, isTerminating: true }, {}],
    ["is for another zone", { zoneHints: ["b"] }, { zoneHints: ["a"] }],
  ] as const) {
    test(`stays while its endpoint serves, though it ${what}`, async (t) => {
      const { cluster, rig: subject, sync } = rig(t);
      cluster.driver.zone = "a";
      cluster.set(service, [remote("10.180.1.1")]);
      await sync();
      connect(subject, 7n);
      cluster.setEndpoints(service, [remote("10.180.1.1", endpoint), remote("10.180.1.2", other)]);
      await sync();
      assert.deepEqual(subject.backend.socketPath.state, ["UDP 10.96.0.1 53 cluster 10.180.1.2 8080"]);
      await sync(true);
      assert.deepEqual(subject.disconnections, []);
    });
  }

  test("is disconnected when the maps do not take what comes in the place of its endpoint", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(service, [remote("10.180.1.1")]);
    await sync();
    connect(subject, 7n);
    subject.faults.update = (map) => (map === "frontends4" ? "ENOMEM" : undefined);
    cluster.set(service, [remote("10.180.1.2"), remote("10.180.1.3")]);
    await sync();
    assert.deepEqual(subject.backend.socketPath.state, []);
    await until("its end", () => subject.disconnections.length > 0);
    assert.deepEqual(
      subject.disconnections.map(({ cookie, remote: to }) => [cookie, to]),
      [[7n, "10.180.1.1"]],
    );
  });

  test("is disconnected when its endpoint goes, also while the rules cannot be written", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    cluster.set(service, [remote("10.180.1.1")]);
    await sync();
    connect(subject, 7n);
    const { backend } = subject.packetPath;
    const refusing = async () => Promise.reject(new Error("the kernel takes no rules"));
    Object.defineProperty(backend, "sync", { value: refusing, configurable: true });
    cluster.set(service, [remote("10.180.1.2")]);
    await assert.rejects(sync(), /takes no rules/);
    assert.equal(connect(subject, 8n), "10.180.1.2", "new sockets are led all the same");
    await until("the end of the socket", () => subject.disconnections.length === 1);
    assert.equal(subject.disconnections[0]?.cookie, 7n);
  });

  test("takes the rules where sockets cannot be told, which is said once", async (t) => {
    const { cluster, rig: subject, sync } = rig(t);
    subject.obstacle = "no capability";
    cluster.set(service, [remote("10.180.1.1")]);
    await sync(true);
    await sync(true);
    const warned = subject.log.filter(({ level }) => level === "warn").map(({ message }) => message);
    assert.deepEqual(warned, ["Connected UDP takes the rules: no capability"]);
    assert.equal(subject.connectUdp(7n, "10.96.0.1", 53, 1n), "10.96.0.1");
  });

  test("is led as soon as sockets can be told", async (t) => {
    const cluster = new TestCluster();
    const subject = new EbpfRig(cluster.driver, { isHurried: true });
    const sync = () => cluster.driver.sync(subject.backend);
    t.after(() => void subject.backend.close());
    subject.obstacle = "no capability";
    cluster.set(service, [remote("10.180.1.1")]);
    const asked = subject.watch(t);
    await sync();
    const ask = (cookie: bigint) => subject.connectUdp(cookie, "10.96.0.1", 53);
    assert.equal(ask(7n), "10.96.0.1");
    const before = asked();
    subject.obstacle = undefined;
    await until("a sync is asked for", () => asked() > before);
    await sync();
    assert.equal(ask(8n), "10.180.1.1");
    assert.deepEqual(subject.backend.degraded, []);
    const limits = subject.log.flatMap(({ facts: { can, cannot } }) => can ?? cannot ?? []);
    const what = "connections decided at the socket for connected UDP";
    assert.deepEqual(limits, [what, "connections decided at the socket", what], "and it is said");
  });
});
