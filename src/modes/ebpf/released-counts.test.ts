/** Counts at an address belong to the Service that had it at the time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { encode } from "../../kernel/bpf/layout.ts";
import { type IpAddress, ipBytes } from "../../net/ip.ts";
import { COUNT_KEY } from "./socket-balancer/maps.ts";
import { PinnedNode } from "./testing/pinned-node.ts";

const TCP = 6;
const NODE = "192.168.0.2";

function countsOn(node: PinnedNode) {
  const map = node.mapsAt("connect4")[0]?.get("counts4") ?? assert.fail("there is no map of counts");
  const keyOf = (address: string, number: number, isRefused: 0 | 1): Uint8Array =>
    encode(COUNT_KEY.IPv4, { address: ipBytes(address as IpAddress), port: number, protocol: TCP, isRefused });
  return {
    count(address: string, number: number, isRefused: 0 | 1 = 0) {
      map.update(keyOf(address, number, isRefused), Uint8Array.of(7, 0, 0, 0, 0, 0, 0, 0));
    },
    /** Dotted, with the port. */
    get counted(): readonly string[] {
      return [...map.entries()]
        .map(([key]) => `${key.slice(0, 4).join(".")}:${Buffer.from(key).readUInt16BE(4)}`)
        .sort();
    },
  };
}

test("a Service that gets the address or the node port of one that is gone counts from zero", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  const old = port("old", "10.96.0.1", { nodePort: 30080 });
  cluster.set(old, [remote("10.180.1.1")]);
  cluster.set(port("other", "10.96.0.2"), [remote("10.180.1.1")]);
  const first = node.start({ counts: 1024 });
  await cluster.driver.sync(first.backend);
  const counts = countsOn(node);
  counts.count("10.96.0.1", 80);
  counts.count("10.96.0.1", 80, 1);
  counts.count(NODE, 30080);
  counts.count("10.96.0.2", 80);
  cluster.delete(old);
  cluster.set(port("heir", "10.96.0.1", { nodePort: 30080 }), [remote("10.180.1.1")]);
  await cluster.driver.sync(first.backend);
  assert.deepEqual(counts.counted, ["10.96.0.2:80"]);
});

test("what a Service gives up is forgotten, and what it keeps is not, with other endpoints either", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(port("web", "10.96.0.1", { nodePort: 30080 }), [remote("10.180.1.1")]);
  const first = node.start({ counts: 1024 });
  await cluster.driver.sync(first.backend);
  const counts = countsOn(node);
  counts.count("10.96.0.1", 80);
  counts.count(NODE, 30080);
  cluster.set(port("web", "10.96.0.1", { nodePort: 30081 }), [remote("10.180.1.2")]);
  await cluster.driver.sync(first.backend);
  assert.deepEqual(counts.counted, ["10.96.0.1:80"]);
});

test("of a Service that went while no process was there nothing is left", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  const old = port("old", "10.96.0.1");
  cluster.set(old, [remote("10.180.1.1")]);
  cluster.set(port("web", "10.96.0.2"), [remote("10.180.1.1")]);
  const first = node.start({ counts: 1024 });
  await cluster.driver.sync(first.backend);
  const counts = countsOn(node);
  counts.count("10.96.0.1", 80);
  counts.count("10.96.0.2", 80);
  first.kill();
  cluster.delete(old);
  const next = node.start({ counts: 1024 });
  cluster.driver.forget();
  await cluster.driver.sync(next.backend);
  assert.deepEqual(countsOn(node).counted, ["10.96.0.2:80"]);
});

test("when a node port is given up, what a Service has counted at a port of that number stays", async (t) => {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  const old = port("old", "10.96.0.1", { nodePort: 30080 });
  cluster.set(old, [remote("10.180.1.1")]);
  cluster.set(port("web", "10.96.0.2", { port: 30080 }), [remote("10.180.1.1")]);
  const first = node.start({ counts: 1024 });
  await cluster.driver.sync(first.backend);
  const counts = countsOn(node);
  counts.count(NODE, 30080);
  counts.count("10.96.0.2", 30080);
  cluster.delete(old);
  await cluster.driver.sync(first.backend);
  assert.deepEqual(counts.counted, ["10.96.0.2:30080"]);
});
