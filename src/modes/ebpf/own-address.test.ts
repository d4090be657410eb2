/** A Service's port at an address of the node belongs to that Service, not to a node port with the same number. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { ip } from "../../model/testing/records.ts";
import { frontendKey } from "./socket-balancer/maps.ts";
import { rig } from "./testing/ebpf-rig.ts";
import { PinnedNode } from "./testing/pinned-node.ts";

const NODE = "192.168.0.2";
const RANGES = ["198.51.100.0/24" as ServicePort["loadBalancerSourceRanges"][number]];
const BALANCER = { port: 30_080, loadBalancerVIPs: [ip(NODE)], loadBalancerSourceRanges: RANGES };
const nodePort = port("np", "10.96.0.1", { nodePort: 30_080 });
const external = port("ext", "10.96.0.2", { port: 30_080, externalIPs: [ip(NODE)] });

test("loadBalancerSourceRanges hold at a load-balancer IP that is the node's, and whose port is the node port", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.hostAddresses = [ip(NODE)];
  cluster.set(port("lb", "10.96.0.1", { nodePort: 30_080, ...BALANCER }), [remote("10.180.1.1")]);
  await sync();
  assert.equal(subject.connect("TCP", NODE, 30_080), NODE, "the rules drop it");
});

test("an external IP that is the node's goes before another Service's node port, as in the rules", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.hostAddresses = [ip(NODE)];
  cluster.set(nodePort, [remote("10.180.1.1")]);
  cluster.set(external, [remote("10.180.1.2")]);
  await sync();
  assert.equal(subject.connect("TCP", NODE, 30_080), NODE);
  cluster.delete(external);
  await sync();
  assert.equal(subject.connect("TCP", NODE, 30_080), "10.180.1.1", "nothing else has it");
});

test("that holds where nothing of a Service is decided at the socket, and from the moment the node has the address", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.watch(t);
  cluster.set(nodePort, [remote("10.180.1.1")]);
  cluster.set(port("lb", "10.96.0.3", { internalPolicyLocal: true, ...BALANCER }), [remote("10.180.1.3")]);
  await sync();
  const seen = new Set<string>();
  const look = () => void seen.add(subject.connect("TCP", NODE, 30_080));
  subject.faults.update = look;
  for (const addresses of [[ip(NODE)], []]) {
    subject.changeAddresses(addresses);
    await sync();
    look();
  }
  assert.deepEqual([...seen], [NODE], "before each write, and after them");
});

test("an address that the node loses is the Service's at the socket again", async (t) => {
  const { cluster, rig: subject, sync } = rig(t);
  subject.watch(t);
  subject.hostAddresses = [ip(NODE)];
  cluster.set(nodePort, [remote("10.180.1.1")]);
  cluster.set(external, [remote("10.180.1.2")]);
  await sync();
  subject.changeAddresses([]);
  await sync();
  assert.equal(subject.connect("TCP", NODE, 30_080), "10.180.1.2");
});

test("maps of an earlier version, which has no element there, get it", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(nodePort, [remote("10.180.1.1")]);
  cluster.set(external, [remote("10.180.1.2")]);
  const start = async () => {
    const process = node.start();
    cluster.driver.forget();
    await cluster.driver.sync(process.backend);
    return process;
  };
  (await start()).kill();
  const [frontends] = node.mapsAt("connect4").flatMap((maps) => maps.get("frontends4") ?? []);
  frontends?.delete(frontendKey("IPv4", ip(NODE), 30_080, 6));
  assert.ok(!node.leads().has(`${NODE}:30080`));
  await start();
  assert.ok(node.leads().has(`${NODE}:30080`));
});
