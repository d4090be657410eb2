import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpAddress } from "../src/net/ip.ts";
import type { DemoSocket } from "./cluster-view.ts";
import { networkFacts, nodeLines, wantedPods } from "./demo-network.ts";
import { addressOf, demoNode } from "./played-node.ts";

const socket = (pod: string, address: string, port = 80, protocol: DemoSocket["protocol"] = "TCP"): DemoSocket => ({
  pod,
  address: address as IpAddress,
  port,
  protocol,
  nodeName: "",
});

test("a pod is one namespace with an address of each family, on the node whose network has them", () => {
  const sockets = [
    socket("web", "10.180.1.7"),
    socket("web", "fd00:10:180:0:1::7"),
    socket("web", "10.180.1.7", 53, "UDP"),
    socket("web", "10.180.1.7", 99, "SCTP"),
  ];
  const { pods, foreign } = wantedPods(sockets);
  const web = pods.get("web");
  assert.deepEqual(foreign, []);
  assert.equal(web?.node, "node-b");
  assert.deepEqual([...(web?.addresses ?? [])], ["10.180.1.7", "fd00:10:180:0:1::7"]);
  assert.deepEqual([...(web?.listen.keys() ?? [])], ["TCP 80", "UDP 53"]);
});

test("an address outside the pod networks is nothing for a namespace of its own", () => {
  const sockets = [socket("x", "192.0.2.1"), socket("x", "192.0.2.1", 81)];
  const { pods, foreign } = wantedPods(sockets);
  assert.equal(pods.size, 0);
  assert.deepEqual(foreign, sockets);
});

test("masquerading takes the address of the interface towards the endpoint", () => {
  const { IPv4, IPv6 } = networkFacts(demoNode, []);
  assert.equal(IPv4.masqueradeAddress("10.180.0.9" as IpAddress), "10.180.0.1");
  assert.equal(IPv4.masqueradeAddress("10.180.1.9" as IpAddress), "10.200.0.2");
  assert.equal(IPv6.masqueradeAddress("fd00:10:180::9" as IpAddress), "fd00:10:180::1");
  assert.equal(IPv6.masqueradeAddress("fd00:10:180:0:1::9" as IpAddress), "fd00:200::2");
});

test("an IPv6 address can be the source of a route at once, also where the Node has no IPv4 one", () => {
  const [IPv4, IPv6] = [demoNode.addresses.IPv4, addressOf("2001:db8:5::5/64")];
  const [added, route] = nodeLines({ name: "six", addresses: { IPv4, IPv6 }, extra: [IPv6] });
  assert.equal(added, "addr add 2001:db8:5::5/128 dev lo nodad");
  assert.match(route ?? "", /^route replace default via \S+ dev eth0 onlink src 2001:db8:5::5$/);
});
