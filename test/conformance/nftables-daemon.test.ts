/**
 * The daemon in nftables mode, run on every case in a fresh namespace, leaves what upstream left: `nft -j list ruleset` and
 * `nft list ruleset`, name for name.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { canonicalNftText } from "./canonical-nft-text.ts";
import { canonicalNftables } from "./canonical-nftables.ts";
import { caseFile, caseNames, caseState, SERVICE_CIDR_OBJECT } from "./conformance-case.ts";
import { conformanceNode } from "./conformance-node.ts";

async function listed(node: NetworkNamespace, options: readonly string[]): Promise<string> {
  const { stdout } = await node.exec(["nft", ...options, "list", "ruleset"]);
  return stdout;
}

describe("nftables mode leaves what upstream left", { concurrency: 2, skip: kernelSkip }, () => {
  for (const name of caseNames()) {
    test(name, async (t) => {
      const node = await conformanceNode("nconf");
      t.after(() => node.remove());
      const { node: nodeObject, services, slices } = caseState(name);
      const daemon = await ProxyDaemon.start(node, {
        config: JSON.parse(caseFile(name, "nftables/config.yaml")),
        hostnameOverride: "node-a",
        objects: [nodeObject, SERVICE_CIDR_OBJECT, ...services, ...slices],
      });
      t.after(() => daemon.dispose());
      const captured = JSON.parse(caseFile(name, "nftables/nft.json"));
      assert.equal(
        canonicalNftables(JSON.parse(await listed(node, ["-j"])).nftables),
        canonicalNftables(captured.nftables),
      );
      assert.equal(canonicalNftText(await listed(node, [])), canonicalNftText(caseFile(name, "nftables/nft.txt")));
      assert.equal(
        await daemon.metric('kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"}'),
        undefined,
      );
    });
  }
});
