import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import type { IpAddress } from "../src/net/ip.ts";
import { networkFacts } from "./demo-network.ts";
import { demoNode, placeOf, playedNode } from "./played-node.ts";
import { clusterDump } from "./testing/cluster-dump.ts";
import { viewOf } from "./testing/example-cluster.ts";

const view = viewOf(...parse(clusterDump(2)).items);
const ip = (text: string) => text as IpAddress;

test("the demo is its own node, or the first worker of a cluster, or the one asked for", () => {
  assert.equal(playedNode({ nodes: [] }, undefined), demoNode);
  const own = { name: "node-a", isControlPlane: false, addresses: [] };
  assert.equal(playedNode({ nodes: [...view.nodes, own] }, undefined), demoNode);
  const worker = playedNode(view, undefined);
  assert.deepEqual([worker.name, worker.addresses.IPv4, worker.extra], ["worker-1", "172.18.0.2", ["172.18.0.2"]]);
  assert.equal(worker.addresses.IPv6, demoNode.addresses.IPv6);
  assert.equal(playedNode(view, "cp-1").addresses.IPv4, "172.18.0.3");
  assert.throws(() => playedNode(view, "nowhere"), /--hostname-override nowhere: .* no such Node, but cp-1, worker-1/);
});

test("endpoints are on the node's pods, elsewhere, or on the node itself", () => {
  const node = playedNode(view, undefined);
  assert.equal(placeOf(ip("10.244.1.20"), "worker-1", node), "here");
  assert.equal(placeOf(ip("10.244.2.20"), "worker-2", node), "elsewhere");
  assert.equal(placeOf(ip("172.18.0.3"), "", node), "elsewhere");
  assert.equal(placeOf(ip("172.18.0.2"), "worker-1", node), "node");
  assert.equal(placeOf(ip("10.180.1.7"), "worker-1", node), "elsewhere", "the demo's own pod networks decide");
  const { IPv4 } = networkFacts(node, view.sockets);
  assert.equal(IPv4.masqueradeAddress(ip("10.244.1.20")), "10.180.0.1");
  assert.equal(IPv4.masqueradeAddress(ip("10.244.2.20")), "10.200.0.2");
  assert.deepEqual([IPv4.isOnNode(ip("172.18.0.2")), IPv4.isOnNode(ip("172.18.0.3"))], [true, false]);
});

test("sockets of a real cluster have the names of their pods, which tell namespaces apart", () => {
  const nameAt = (address: string) => view.sockets.find((socket) => socket.address === address)?.pod;
  assert.equal(nameAt("10.244.1.20"), "web-0.blue");
  assert.equal(nameAt("10.244.1.21"), "web-0.green");
  assert.equal(nameAt("10.244.1.40"), "ingress-a");
  const [api, exporter] = [6443, 9100].map((port) =>
    view.sockets.find((socket) => socket.address === "172.18.0.3" && socket.port === port),
  );
  assert.deepEqual([api?.pod, exporter?.pod], ["172.18.0.3", "node-exporter-cp-1"]);
});
