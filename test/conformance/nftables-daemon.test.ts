/**
 * The daemon in nftables mode leaves the same state as upstream in every case: the output of `nft -j list ruleset` and
 * `nft list ruleset`, name for name.
 */
import assert from "node:assert/strict";
import type { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { canonicalNftText } from "./canonical-nft-text.ts";
import { canonicalNftables } from "./canonical-nftables.ts";
import { caseFile, SERVICE_CIDR_OBJECT } from "./conformance-case.ts";
import { daemonLeavesWhatUpstreamLeft } from "./daemon-cases.ts";

async function listed({ namespace }: ProxyDaemon, ...options: readonly string[]): Promise<string> {
  const { stdout } = await namespace.exec(["nft", ...options, "list", "ruleset"]);
  return stdout;
}

/** Matches the relay's listening sockets; health checks listen on other ports. */
const RELAY_LISTENER = /(?<= )(?:127\.0\.0\.1|\[::1\]):30\d+/g;

daemonLeavesWhatUpstreamLeft({
  mode: "nftables",
  objects: ({ node, services, slices }) => [node, SERVICE_CIDR_OBJECT, ...services, ...slices],
  expected: (name) => [
    canonicalNftables(JSON.parse(caseFile(name, "nftables/nft.json")).nftables),
    canonicalNftText(caseFile(name, "nftables/nft.txt")),
  ],
  actual: async (daemon) => [
    canonicalNftables(JSON.parse(await listed(daemon, "-j")).nftables),
    canonicalNftText(await listed(daemon)),
  ],
  also: async (daemon, name) => {
    if (name.startsWith("v1.37/localhost-")) {
      const { body } = await daemon.fetch("http://127.0.0.1:10249/metrics");
      const measured = body.split("\n").filter((line) => line.includes("localhost_nodeport"));
      assert.equal(
        measured.map((line) => `${line}\n`).join(""),
        name.endsWith("-gate-off") ? "" : caseFile(name, "nftables/metrics.txt"),
      );
      const expected = caseFile(name, "nftables/listeners.txt").match(RELAY_LISTENER) ?? [];
      const { stdout } = await daemon.namespace.exec(["ss", "-Hltn"]);
      assert.deepEqual(stdout.match(RELAY_LISTENER)?.sort() ?? [], [...expected].sort());
    }
    const failures = await daemon.metric('kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"}');
    assert.equal(failures, 0);
  },
});
