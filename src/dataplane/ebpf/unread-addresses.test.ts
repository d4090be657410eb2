/** The kernel is asked for the addresses of the node, and does not answer. */
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
