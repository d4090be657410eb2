/**
 * The daemon, run on every case in a fresh namespace, leaves what upstream left: `iptables-save` and `ip6tables-save`,
 * name for name.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NetworkNamespace } from "../../src/demo/network-namespace.ts";
import { newRunName } from "../../src/demo/run-name.ts";
import { ProxyDaemon } from "../support/proxy-daemon.ts";
import { kernelSkip } from "../support/topology.ts";
import { canonicalIptables } from "./canonical-iptables.ts";
import { CAPTURED_BEFORE_IPV6, caseFile, caseNames, caseState } from "./conformance-case.ts";

/** The node that the cases were captured on (cases' README): bare but for these. */
async function conformanceNode(name: string): Promise<NetworkNamespace> {
  const node = await NetworkNamespace.create(newRunName(name));
  await node.configure([
    "link add eth0 type veth peer name eth0-peer",
    "link set eth0-peer up",
    "link set eth0 up",
    "addr add 10.200.0.2/24 dev eth0",
    "addr add fd00:200::2/64 dev eth0 nodad",
    "link add cni0 type bridge",
    "link set cni0 up",
    "addr add 10.180.0.1/24 dev cni0",
    "addr add fd00:10:180::1/80 dev cni0 nodad",
    "route add default via 10.200.0.1",
    "route add ::/0 via fd00:200::1",
  ]);
  await node.sysctl({ "net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1 });
  return node;
}

describe("iptables mode leaves what upstream left", { concurrency: 2, skip: kernelSkip }, () => {
  for (const name of caseNames()) {
    test(name, async (t) => {
      const node = await conformanceNode("conf");
      t.after(() => node.remove());
      const { node: nodeObject, services, slices } = caseState(name);
      const daemon = await ProxyDaemon.start(node, {
        config: JSON.parse(caseFile(name, "iptables/config.yaml")),
        hostnameOverride: "node-a",
        objects: [nodeObject, ...services, ...slices],
      });
      t.after(() => daemon.dispose());
      const ipv4 = await daemon.saved("iptables-save");
      assert.equal(canonicalIptables(ipv4), canonicalIptables(caseFile(name, "iptables/iptables.txt")));
      const ipv6 = await daemon.saved("ip6tables-save");
      if (CAPTURED_BEFORE_IPV6.has(name)) assert.match(ipv6, /-A POSTROUTING .* -j KUBE-POSTROUTING/);
      else assert.equal(canonicalIptables(ipv6), canonicalIptables(caseFile(name, "iptables/ip6tables.txt")));
    });
  }
});
