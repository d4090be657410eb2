import assert from "node:assert/strict";
import { test } from "node:test";
import type { LinkAddress } from "../../kernel/route/links.ts";
import { nodePortAddresses } from "../../model/node-port-addresses.ts";
import { ip } from "../../model/testing/records.ts";
import type { IpFamily } from "../../net/ip.ts";
import { equalAddressFacts, nodeAddressFacts } from "./node-facts.ts";

function on(link: string, ...addresses: string[]): LinkAddress[] {
  return addresses.map((address) => ({
    address: ip(address),
    prefixLength: link !== "kube-ipvs0" ? 24 : address.includes(":") ? 128 : 32,
    link,
  }));
}

function factsOf(family: IpFamily, configured: readonly string[], addresses: readonly LinkAddress[]) {
  const { bound, nodeAddresses, nodePortIPs } = nodeAddressFacts(addresses, nodePortAddresses(family, configured));
  return { bound: [...bound], nodeAddresses: [...nodeAddresses], nodePortIPs: [...nodePortIPs] };
}

const IPV4 = [
  ...on("lo", "127.0.0.1"),
  ...on("eth0", "192.168.0.2"),
  ...on("cni0", "10.1.0.1"),
  ...on("kube-ipvs0", "10.96.0.1"),
];

test("the node's addresses are those of other devices than kube-ipvs0, without loopback", () => {
  assert.deepEqual(factsOf("IPv4", [], IPV4), {
    bound: ["10.96.0.1"],
    nodeAddresses: ["192.168.0.2", "10.1.0.1"],
    nodePortIPs: ["10.1.0.1", "192.168.0.2"],
  });
});

test("link-local IPv6 addresses count for nothing, on any device", () => {
  const addresses = [
    ...on("eth0", "fe80::1", "fd00::2", "fec0::1"),
    ...on("kube-ipvs0", "fe80::9", "fd00:96::1"),
    ...on("lo", "::1"),
  ];
  assert.deepEqual(factsOf("IPv6", [], addresses), {
    bound: ["fd00:96::1"],
    nodeAddresses: ["fd00::2", "fec0::1"],
    nodePortIPs: ["fd00::2", "fec0::1"],
  });
});

test("with nodePortAddresses, node ports answer on addresses in them, never on loopback or service addresses", () => {
  assert.deepEqual(factsOf("IPv4", ["10.0.0.0/8", "127.0.0.0/8"], IPV4).nodePortIPs, ["10.1.0.1"]);
  assert.deepEqual(factsOf("IPv4", ["203.0.113.0/24"], IPV4).nodePortIPs, []);
  assert.deepEqual(factsOf("IPv4", ["192.168.0.0/16", "0.0.0.0/0"], IPV4).nodePortIPs, ["10.1.0.1", "192.168.0.2"]);
});

test("facts are equal when plans are: a change of kube-ipvs0 is none, one of a device is", () => {
  const all = nodePortAddresses("IPv4", []);
  const facts = nodeAddressFacts(IPV4, all);
  assert.ok(equalAddressFacts(facts, nodeAddressFacts([...IPV4, ...on("kube-ipvs0", "10.96.0.2")], all)));
  assert.ok(equalAddressFacts(facts, nodeAddressFacts([...IPV4, ...on("veth1", "10.1.0.1")], all)));
  assert.ok(!equalAddressFacts(facts, nodeAddressFacts([...IPV4, ...on("veth1", "10.1.0.9")], all)));
  assert.ok(!equalAddressFacts(facts, nodeAddressFacts(IPV4.slice(0, 2), all)));
});
