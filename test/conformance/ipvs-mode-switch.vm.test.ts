/**
 * A node changes to the ipvs mode and away from it, in place: the next daemon leaves its own things only, and those exactly
 * as on a node that never was in another mode.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { hasNftables } from "../../testkit/support/kernel-modules.ts";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { traitsOf } from "../kernel/flows/modes.ts";
import { canonicalIptables } from "./canonical-iptables.ts";
import { caseFile, caseState, SERVICE_CIDR_OBJECT } from "./conformance-case.ts";
import { conformanceNode } from "./conformance-node.ts";

const CASE = "dual-stack";
const IPTABLES_CONFIG: Readonly<Record<string, unknown>> = JSON.parse(caseFile(CASE, "iptables/config.yaml"));

type Mode = "iptables" | "nftables" | "userspace" | "ipvs";

/** The chain that the kubelet shares is never deleted, and jumps that come back later stand before those to it. */
function ownLines(saved: string): string[] {
  const lines = canonicalIptables(saved).split("\n");
  return lines.filter((line) => line.includes("KUBE-") && !line.includes("KUBE-FIREWALL"));
}

interface Left {
  readonly iptables: readonly string[];
  readonly nftables: string;
  /** Virtual servers, sets and the device, without the rules. */
  readonly ipvs: string;
}

async function leftIn(daemon: ProxyDaemon, node: NetworkNamespace): Promise<Left> {
  const saved = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
  const { stdout: nftables } = await node.exec(["nft", "list", "tables"]);
  const everything = await traitsOf.ipvs.rules(daemon);
  const rules = saved.map(canonicalIptables).join("\n");
  assert.ok(everything.startsWith(rules));
  return {
    iptables: saved.flatMap(ownLines).sort(),
    nftables: nftables
      .split("\n")
      .filter((line) => line.includes("kube-proxy"))
      .join("\n"),
    ipvs: everything.slice(rules.length).trim(),
  };
}

/**
 * Runs a daemon to its first sync and stops it once `check` accepts what is in the kernel: what other modes left goes after
 * that sync, and a stop may come before it is gone.
 *
 * @returns what is in the kernel after the stop, which `check` has accepted, too.
 */
async function after(mode: Mode, node: NetworkNamespace, check: (left: Left) => void): Promise<Left> {
  const { node: nodeObject, services, slices } = caseState(CASE);
  const { mode: _, ...config } = IPTABLES_CONFIG;
  const daemon = await ProxyDaemon.start(node, {
    config: { ...config, mode },
    hostnameOverride: "node-a",
    objects: [nodeObject, SERVICE_CIDR_OBJECT, ...services, ...slices],
  });
  try {
    const isAccepted = async (): Promise<boolean> => {
      check(await leftIn(daemon, node));
      return true;
    };
    // The last look says what is wrong.
    await daemon.until("what other modes left to go", () => isAccepted().catch(() => false)).catch(isAccepted);
    await daemon.stop();
    const left = await leftIn(daemon, node);
    check(left);
    return left;
  } finally {
    await daemon.dispose();
  }
}

test("to the ipvs mode and away from it", async (t) => {
  const [fresh, node] = await Promise.all([conformanceNode("fresh"), conformanceNode("switch")]);
  t.after(() => Promise.all([fresh.remove(), node.remove()]));
  const ipvs = await after("ipvs", fresh, (left) => {
    assert.equal(left.nftables, "");
    assert.match(left.ipvs, /kube-ipvs0/);
    assert.match(left.ipvs, /^10\.\S+\/TCP rr /m);
  });

  const others: readonly Mode[] = (await hasNftables(node))
    ? ["iptables", "nftables", "userspace"]
    : ["iptables", "userspace"];
  for (const other of others) {
    await after(other, node, (left) => {
      assert.equal(left.ipvs, "", `what ipvs leaves in ${other} mode`);
      assert.ok(!left.iptables.some((line) => /match-set|IPVS/.test(line)), `rules of ipvs in ${other} mode`);
      if (other !== "nftables") assert.ok(left.iptables.length > 0);
      else assert.deepEqual(left.iptables, []);
    });
    await after("ipvs", node, (left) => assert.deepEqual(left, ipvs, `after ${other}`));
  }
});
