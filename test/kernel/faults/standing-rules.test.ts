/** What a daemon keeps against the objects, because they are not valid or the kernel refused them: commands that look at the kernel ask it. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import { reasonToSkip, testCgroup } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { commandsBeside } from "../node-commands.ts";
import { type FaultOptions, faultNode, nodeObject, served, service, slice, startDaemon } from "./fault-node.ts";
import { RestoreWrapper } from "./restore-wrapper.ts";

const good = [1, 2].flatMap((number) => served(`good-${number}`, number));
const bad = served("bad", 9);
const range = {
  apiVersion: "networking.k8s.io/v1",
  kind: "ServiceCIDR",
  ...{ metadata: { name: "all" }, spec: { cidrs: ["10.96.0.0/16"] } },
};
const others = [nodeObject, range, ...good];

type Config = Readonly<Record<string, unknown>>;
/** The configuration of each mode, and whether maps of this machine's kernel hold a part of it. */
const MODES: Readonly<Record<string, (t: TestContext) => Config | Promise<Config>>> = {
  iptables: () => ({ mode: "iptables" }),
  nftables: () => ({ mode: "nftables", nftables: { layout: "Compatible" } }),
  flat: () => ({ mode: "nftables", nftables: { layout: "Flat" } }),
  ebpf: async (t) => {
    const { path } = await testBpffs(t);
    return { mode: "ebpf", ebpf: { cgroupRoot: testCgroup(t), pinFolder: join(path, "kept") } };
  },
};

async function started(t: TestContext, folder: string, { config, ...more }: FaultOptions) {
  const socket = join(folder, "socket");
  const daemon = await startDaemon(t, await faultNode(t), {
    objects: [range, ...good, ...bad],
    config: { clusterCIDR: "10.180.0.0/16", ...config },
    args: [`--inspect-socket=${socket}`],
    ...more,
  });
  return { daemon, socket };
}

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-standing-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** @param why the beginning of the reason. */
async function expectTold(daemon: ProxyDaemon, socket: string, why: string): Promise<void> {
  const [here, alone] = [commandsBeside(daemon, "node-a", socket), commandsBeside(daemon, "node-a", undefined)];
  const says = (head: string) =>
    new RegExp(
      `${head}\\bns/bad:http/TCP is refused \\(${why}.*: its last known good rules stand, from 10\\.96\\.0\\.9:80 to`,
    );
  const diff = await here("diff");
  assert.match(
    diff.stdout,
    says("^No differences\\.\nDecided by the daemon here, and no difference:\n {2}"),
    diff.stderr,
  );
  assert.equal(diff.status, 0);
  assert.equal((await alone("diff")).status, 1, "without the daemon it is a difference");
  const proof = await here("prove", "--family", "ipv4");
  assert.match(proof.stdout, /^this node's kernel \(node-a, IPv4\): the rules treat every packet/, proof.stderr);
  assert.match(proof.stdout, says("  Decided by the daemon here, and no difference:\n {4}"));
  assert.equal(proof.status, 0);
  const without = await alone("prove", "--family", "ipv4");
  assert.equal(without.status, 1, without.stdout + without.stderr);
  assert.match(without.stdout, /to 10\.96\.0\.9:80$/m);
  const explained = await here("explain", "ns/bad");
  assert.match(explained.stdout, says("^"), explained.stderr);
  assert.match(explained.stdout, /^ {2}10\.180\.1\.9:8080 .*used, 50 %/m);
}

describe("rules that stand", { concurrency: 2, skip: kernelSkip, timeout: stretched(300_000) }, () => {
  for (const [name, configOf] of Object.entries(MODES)) {
    const skip = name === "ebpf" && reasonToSkip();
    test(`${name}: of a Service that the objects no longer define validly`, { skip }, async (t) => {
      const { daemon, socket } = await started(t, scratch(t), { config: await configOf(t) });
      daemon.writeObjects([
        ...others,
        service("bad", "10.96.0.9", { ports: [{ name: "http", port: "none" }] }),
        bad[1],
      ]);
      await daemon.logged(/Bad manifest ignored/);
      await expectTold(daemon, socket, "items\\[\\d\\]\\.spec\\.ports\\[0\\]\\.port must be a whole number");
      const { stderr, status } = await commandsBeside(daemon, "node-a", undefined)("explain", "ns/bad");
      assert.match(stderr, /^Error: Service ns\/bad is refused: items\[\d\]\.spec\.ports\[0\]\.port must be/m);
      assert.equal(status, 2);
    });
  }

  test("iptables: of a Service that the kernel refuses", async (t) => {
    const folder = scratch(t);
    const wrapper = new RestoreWrapper(folder, "names the line");
    const { daemon, socket } = await started(t, folder, { env: wrapper.env });
    wrapper.refuse("ns/bad");
    const moved = [service("bad", "10.96.0.9", { externalIPs: ["203.0.113.7"] }), slice("bad", ["10.180.5.9"])];
    daemon.writeObjects([...others, ...moved]);
    await daemon.logged(/the kernel refused a part of the rules: ns\/bad:http/);
    await expectTold(daemon, socket, "iptables-restore: line \\d+ failed");
    wrapper.heal();
    const diff = commandsBeside(daemon, "node-a", socket);
    await daemon.until("the new ones", async () => (await diff("diff")).stdout === "No differences.\n");
  });
});
