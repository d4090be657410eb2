/**
 * The daemon, run on every case in a fresh namespace, leaves what upstream left: `iptables-save` and `ip6tables-save`,
 * name for name.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { canonicalIptables } from "./canonical-iptables.ts";
import { caseFile, caseNames, caseState } from "./conformance-case.ts";
import { conformanceNode } from "./conformance-node.ts";

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
      assert.equal(canonicalIptables(ipv6), canonicalIptables(caseFile(name, "iptables/ip6tables.txt")));
    });
  }
});
