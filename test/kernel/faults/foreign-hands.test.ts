/** Other programs on the node: they flush tables, hold the lock, and have their own rules. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { UNANSWERED_TABLE } from "../../../src/kernel/nftables/delete-tables.ts";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { faultNode, isServedAsMade, nodeObject, SYNC_PERIOD_MS, served, startDaemon } from "./fault-node.ts";

const objects = [1, 2, 3].flatMap((number) => served(`service-${number}`, number));

async function iptables(node: NetworkNamespace, ...args: string[]): Promise<void> {
  await node.exec(["iptables", ...args]);
}

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-fault-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** What another program did to the tables. */
const FLUSHES: readonly { readonly name: string; readonly commands: readonly (readonly string[])[] }[] = [
  {
    name: "everything, with its chains",
    commands: ["filter", "nat", "mangle"].flatMap((table) => [
      ["-t", table, "-F"],
      ["-t", table, "-X"],
    ]),
  },
  {
    name: "the table nat, with its chains",
    commands: [
      ["-t", "nat", "-F"],
      ["-t", "nat", "-X"],
    ],
  },
  { name: "the rules of nat, without its chains", commands: [["-t", "nat", "-F"]] },
  { name: "the rules of filter, without its chains", commands: [["-F"]] },
];

describe("other programs on the node", { concurrency: 2, skip: kernelSkip, timeout: stretched(120_000) }, () => {
  for (const { name, commands } of FLUSHES) {
    test(`another program flushes ${name}: all is back within the monitor's period`, async (t) => {
      const node = await faultNode(t);
      const daemon = await startDaemon(t, node, { objects });
      await daemon.until("the canary", async () => (await daemon.saved("iptables-save")).includes("KUBE-PROXY-CANARY"));
      const before = canonicalIptables(await daemon.saved("iptables-save"));
      for (const args of commands) await iptables(node, ...args);
      assert.notEqual(canonicalIptables(await daemon.saved("iptables-save")), before);
      await daemon.until(
        "the rules",
        async () => canonicalIptables(await daemon.saved("iptables-save")) === before,
        10 * SYNC_PERIOD_MS,
      );
      await daemon.logged(/"Reloading after iptables flush"/);
    });
  }

  for (const backEnd of ["nft", "legacy"] as const) {
    test(`${backEnd}: one chain of a service is flushed, another gets a foreign rule: both are back within the monitor's period`, async (t) => {
      const folder = scratch(t);
      for (const tool of ["iptables", "ip6tables"]) {
        for (const part of ["", "-save", "-restore"]) {
          symlinkSync(`/usr/sbin/${tool}-${backEnd}${part}`, join(folder, tool + part));
        }
      }
      const lock = join(folder, "xtables.lock");
      const env = { PATH: `${folder}:${process.env.PATH}`, XTABLES_LOCKFILE: lock };
      const node = await faultNode(t);
      const tool = async (...args: string[]) => {
        const all: [string, ...string[]] = [
          "env",
          `XTABLES_LOCKFILE=${lock}`,
          `iptables-${backEnd}${args.length === 0 ? "-save" : ""}`,
          ...args,
        ];
        return (await node.exec(all)).stdout;
      };
      const daemon = await startDaemon(t, node, { objects, env });
      await daemon.until("the canary", async () => (await tool()).includes("KUBE-PROXY-CANARY"));
      const before = canonicalIptables(await tool());
      const chainOf = (target: string, number: number) =>
        new RegExp(`-A (${target}-\\S+) .*ns/service-${number}:http`).exec(before)?.[1] ?? assert.fail(target);
      const series = 'kubeproxy_sync_proxy_rules_repairs_total{ip_family="IPv4"}';
      for (const args of [
        ["-F", chainOf("KUBE-SVC", 1)],
        ["-I", chainOf("KUBE-SEP", 2), "-j", "ACCEPT"],
        ["-A", "KUBE-SERVICES", "-j", "ACCEPT"],
        ["-A", "KUBE-POSTROUTING", "-j", "ACCEPT"],
      ]) {
        const repairs = (await daemon.metric(series)) ?? 0;
        const logged = daemon.log.length;
        await tool("-w", "-t", "nat", ...args);
        assert.notEqual(canonicalIptables(await tool()), before);
        const same = async () => canonicalIptables(await tool()) === before;
        // A check that took long on a busy machine is not repeated for four times as long.
        await daemon.until(`the rules after ${args.join(" ")}`, same, 20 * SYNC_PERIOD_MS);
        assert.match(
          daemon.log.slice(logged),
          new RegExp(`changed our iptables rules; repairing.* chains="[^"]*${args[1]}`),
        );
        await daemon.until("the count", async () => (await daemon.metric(series)) === repairs + 1);
      }
    });
  }

  test("another program holds the xtables lock: that is said, and the change comes when the lock is free", async (t) => {
    const folder = scratch(t);
    for (const tool of ["iptables", "ip6tables"]) {
      for (const part of ["", "-save", "-restore"])
        symlinkSync(`/usr/sbin/${tool}-legacy${part}`, join(folder, tool + part));
    }
    const lock = join(folder, "xtables.lock");
    const node = await faultNode(t);
    const env = { PATH: `${folder}:${process.env.PATH}`, XTABLES_LOCKFILE: lock };
    const daemon = await startDaemon(t, node, { objects, env });
    const holder = spawn("flock", [lock, "sh", "-c", "echo held; exec cat"], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    t.after(() => holder.stdin.end());
    await once(holder.stdout, "data");
    daemon.writeObjects([nodeObject, ...objects, ...served("late", 4)]);
    await daemon.until("the message", () =>
      /"Sync failed" err=<\n.*iptables-restore .*\n.*holding the xtables lock/.test(daemon.log),
    );
    await daemon.until("503", async () => (await daemon.fetch("http://127.0.0.1:10256/healthz")).status === 503);
    const series = 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}';
    assert.ok(((await daemon.metric(series)) ?? 0) > 0);
    const saved = async () => (await node.exec(["iptables-legacy-save"])).stdout;
    assert.equal(isServedAsMade(await saved(), 4), false);
    holder.stdin.end();
    await daemon.until("the late service", async () => isServedAsMade(await saved(), 4));
    await daemon.until("health", async () => (await daemon.fetch("http://127.0.0.1:10256/healthz")).status === 200);
    for (const number of [1, 2, 3]) assert.ok(isServedAsMade(await saved(), number));
  });

  test("--cleanup removes what is ours and leaves what is the kubelet's or anybody else's", async (t) => {
    const node = await faultNode(t);
    const tables = async () => (await node.exec(["nft", "list", "tables"])).stdout;
    // As a process leaves it that is killed while it looks for endpoints that do not answer.
    const leave = async () => {
      for (const family of ["ip", "ip6"]) await node.exec(["nft", "add", "table", family, UNANSWERED_TABLE]);
      assert.match(await tables(), /ip6 kube-proxy-unanswered/);
    };
    await leave();
    const daemon = await startDaemon(t, node, { objects });
    assert.doesNotMatch(await tables(), /unanswered/);
    await daemon.stop();
    await leave();
    const foreign = [
      ["-t", "nat", "-N", "KUBE-KUBELET-CANARY"],
      ["-t", "nat", "-N", "KUBE-MARK-DROP"],
      ["-t", "nat", "-A", "KUBE-MARK-DROP", "-j", "MARK", "--or-mark", "0x8000"],
      ["-t", "nat", "-A", "POSTROUTING", "-s", "10.9.0.0/16", "-j", "MASQUERADE"],
      ["-N", "KUBE-LIKE"],
      ["-A", "KUBE-FIREWALL", "-m", "mark", "--mark", "0x8000", "-j", "DROP"],
      ["-I", "FORWARD", "-p", "tcp", "--dport", "4711", "-j", "ACCEPT"],
      [
        "-t",
        "mangle",
        "-A",
        "FORWARD",
        "-p",
        "tcp",
        "-j",
        "TCPMSS",
        "--clamp-mss-to-pmtu",
        "--tcp-flags",
        "SYN,RST",
        "SYN",
      ],
    ];
    for (const args of foreign) await iptables(node, ...args);
    const { stdout: before } = await node.exec(["iptables-save"]);
    await node.exec([KUBE_PROXY, "--cleanup"]);
    assert.doesNotMatch(await tables(), /unanswered/);
    const { stdout: after } = await node.exec(["iptables-save"]);
    const rulesOf = (saved: string) =>
      saved
        .split("\n")
        .filter((line) => /^(:[A-Z]+-|-A )/.test(line))
        .map((line) => line.replace(/ \[.*/, ""));
    const kept = rulesOf(before).filter(
      (line) =>
        /KUBE-KUBELET-CANARY|KUBE-MARK-DROP|KUBE-LIKE|KUBE-FIREWALL|10\.9\.0\.0|4711|TCPMSS/.test(line) &&
        !line.includes("KUBE-PROXY-FIREWALL"),
    );
    assert.equal(kept.length, 12);
    assert.deepEqual(rulesOf(after), kept);
    const { stdout: after6 } = await node.exec(["ip6tables-save"]);
    assert.deepEqual(
      rulesOf(after6).filter((line) => !line.includes("KUBE-FIREWALL")),
      [],
    );
    await node.exec([KUBE_PROXY, "--cleanup"]);
    assert.deepEqual(rulesOf((await node.exec(["iptables-save"])).stdout), kept);
  });

  test("--cleanup in flat nftables mode leaves of iptables mode no more than what iptables-nft never takes away", async (t) => {
    const node = await faultNode(t);
    for (const config of [{}, { mode: "nftables", nftables: { layout: "Flat" } }]) {
      const daemon = await startDaemon(t, node, { objects, config });
      await daemon.synced();
      await daemon.stop();
    }
    await node.exec([KUBE_PROXY, "--cleanup"]);
    const { stdout: left } = await node.exec(["nft", "list", "ruleset"]);
    const found = (pattern: RegExp) => [...new Set(Array.from(left.matchAll(pattern), ([, name]) => name))].sort();
    assert.deepEqual(found(/^table ip6? (\S+)/gm), ["filter", "mangle", "nat"]);
    const ofTool = ["FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"];
    assert.deepEqual(found(/^\tchain (\S+)/gm), [...ofTool.slice(0, 2), "KUBE-FIREWALL", ...ofTool.slice(2)]);
    // The kubelet may need them, and kube-proxy leaves them, too.
    for (const rule of found(/^\t\t(?!type )(.+)$/gm))
      assert.match(rule ?? "", /jump KUBE-FIREWALL$|^ip saddr != 127\.0\.0\.0\/8 ip daddr 127/);
  });
});
