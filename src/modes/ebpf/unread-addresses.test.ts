/** The kernel does not return the node's addresses. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { until } from "../../../testkit/support/patience.ts";
import { ip } from "../../model/testing/records.ts";
import { EbpfRig, rig } from "./testing/ebpf-rig.ts";

const NODE = "192.168.0.2";
const OTHER = "192.168.0.3";

test("while they cannot be read, the known ones stay in use and no socket is cut; that is named until they can", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.watch(t);
  subject.hostAddresses = [ip(NODE)];
  cluster.set(port("web", "10.96.0.1", { nodePort: 30_080 }), [remote("10.180.1.1")]);
  cluster.set(port("dns", "10.96.0.2", { protocol: "UDP", port: 53 }), [remote("10.180.1.2")]);
  await sync();
  subject.connectUdp(7n, "10.96.0.2", 53);
  subject.faults.addresses = () => "ENOBUFS";
  subject.changeAddresses([ip(NODE), ip(OTHER)]);
  for (const full of [false, true]) {
    await sync(full);
    assert.deepEqual(subject.disconnections, []);
    assert.equal(subject.connect("TCP", NODE, 30_080), "10.180.1.1");
    assert.deepEqual(
      subject.backend.degraded.map(({ reason }) => reason),
      ["addresses: as the test wants it: ENOBUFS"],
    );
  }
  assert.equal(subject.log.filter(({ level }) => level === "error").length, 1, "it is said once");
  subject.faults.addresses = undefined;
  await sync();
  assert.equal(subject.connect("TCP", OTHER, 30_080), "10.180.1.1");
  assert.deepEqual(subject.backend.degraded, []);
});

test("they are asked for again though nothing else asks for a sync", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { isHurried: true });
  t.after(() => void subject.backend.close());
  await cluster.driver.sync(subject.backend);
  const asked = subject.watch(t);
  subject.faults.addresses = () => "ENOBUFS";
  subject.changeAddresses([ip(NODE)]);
  await cluster.driver.sync(subject.backend);
  const before = asked();
  await until("a sync is asked for", () => asked() > before);
});

test("where they cannot be read at first, sockets are led as soon as they can, and no full sync is asked for before", async (t) => {
  const cluster = new TestCluster();
  const subject = new EbpfRig(cluster.driver, { isHurried: true });
  t.after(() => void subject.backend.close());
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1")]);
  let asked = 0;
  let fullSyncs = 0;
  subject.faults.addresses = () => {
    asked++;
    return "ENOBUFS";
  };
  await cluster.driver.sync(subject.backend);
  assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.96.0.1");
  subject.watch(t, () => void fullSyncs++);
  // Ignore earlier full syncs, which come from the rules.
  fullSyncs = 0;
  await until("they are asked for again and again", () => asked > 3);
  assert.equal(fullSyncs, 0);
  subject.faults.addresses = undefined;
  await until("a full sync is asked for", () => fullSyncs > 0);
  await cluster.driver.sync(subject.backend, { full: true });
  assert.equal(subject.connect("TCP", "10.96.0.1", 80), "10.180.1.1");
});

test("what has changed while the watch had failed is known when it is begun again", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.hostAddresses = [ip(NODE)];
  cluster.set(port("web", "10.96.0.1", { nodePort: 30_080 }), [remote("10.180.1.1")]);
  await sync();
  subject.hostAddresses = [ip(OTHER)];
  subject.watch(t);
  await sync();
  assert.equal(subject.connect("TCP", OTHER, 30_080), "10.180.1.1");
  assert.equal(subject.connect("TCP", NODE, 30_080), NODE);
});
