/** A node changes its mode in place: the next daemon finds the other mode's rules, and leaves only its own. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { canonicalIptables } from "./canonical-iptables.ts";
import { canonicalNftables } from "./canonical-nftables.ts";
import { caseFile, caseState, SERVICE_CIDR_OBJECT } from "./conformance-case.ts";
import { conformanceNode } from "./conformance-node.ts";

const CASE = "dual-stack";

type Mode = "iptables" | "nftables";
const CUT_SHORT = "Ended before everything was done";

/** What is in the kernel. */
interface Left {
  readonly saved: readonly [string, string];
  readonly nftables: readonly object[];
}

/** The chain that the kubelet shares is never deleted; jumps that come back later stand before those to it. */
function comparable(saved: string): string {
  const lines = canonicalIptables(saved).split("\n");
  const [shared, others] = [true, false].map((isShared) =>
    lines.filter((line) => line.endsWith("-j KUBE-FIREWALL") === isShared),
  );
  return [...(others ?? []), ...(shared ?? []).sort()].join("\n");
}

test("iptables to nftables and back", { skip: kernelSkip }, async (t) => {
  const node = await conformanceNode("switch");
  t.after(() => node.remove());
  const { node: nodeObject, services, slices } = caseState(CASE);

  /** Runs a daemon to its first sync and stops it. @returns what is in the kernel then. */
  async function after(mode: Mode): Promise<Left> {
    const daemon = await ProxyDaemon.start(node, {
      config: JSON.parse(caseFile(CASE, `${mode}/config.yaml`)),
      hostnameOverride: "node-a",
      objects: [nodeObject, SERVICE_CIDR_OBJECT, ...services, ...slices],
    });
    try {
      // The other mode's rules go after the first sync, and before the end.
      await daemon.stop();
      // On a busy machine a stop may be over before they are gone: the next start takes them.
      if (daemon.log.includes(CUT_SHORT)) return await after(mode);
      const saved = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
      const { stdout } = await node.exec(["nft", "-j", "list", "ruleset"]);
      const objects: readonly Record<string, { readonly table?: string; readonly name?: string }>[] =
        JSON.parse(stdout).nftables;
      const isOurs = (object: (typeof objects)[number]) =>
        Object.entries(object).some(([kind, { table, name }]) => (kind === "table" ? name : table) === "kube-proxy");
      return { saved, nftables: objects.filter(isOurs) };
    } finally {
      await daemon.dispose();
    }
  }

  const expectIptables = async () => {
    const { saved, nftables } = await after("iptables");
    assert.deepEqual(nftables, []);
    assert.equal(comparable(saved[0]), comparable(caseFile(CASE, "iptables/iptables.txt")));
    assert.equal(comparable(saved[1]), comparable(caseFile(CASE, "iptables/ip6tables.txt")));
  };
  await expectIptables();
  const { saved, nftables } = await after("nftables");
  for (const text of saved) {
    // The kubelet shares this one.
    const left = text.split("\n").filter((line) => line.includes("KUBE-") && !line.includes("KUBE-FIREWALL"));
    assert.deepEqual(left, []);
  }
  const captured = JSON.parse(caseFile(CASE, "nftables/nft.json"));
  assert.equal(canonicalNftables(nftables), canonicalNftables(captured.nftables));
  await expectIptables();
});
