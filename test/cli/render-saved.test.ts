/**
 * `render -o iptables-save` against a node: equal to what the tools print after the daemon has programmed a namespace,
 * with both back ends; and the comparison in the help works in a shell as written.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { render } from "../../src/tools/cli/render.ts";
import { usageOf } from "../../src/tools/cli/subcommand-options.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../testkit/support/topology.ts";
import { caseState } from "../conformance/conformance-case.ts";
import { conformanceNode } from "../conformance/conformance-node.ts";

const run = promisify(execFile);
const { node: nodeObject, services, slices } = caseState("random-002");
const OBJECTS = [nodeObject, ...services, ...slices];
const FAMILIES = [
  { option: "ipv4", prefix: "ip" },
  { option: "ipv6", prefix: "ip6" },
] as const;

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-saved-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** The host's tools of one back end under their plain names. */
function toolsOf(t: TestContext, backEnd: "nft" | "legacy"): NodeJS.ProcessEnv {
  const folder = scratch(t);
  for (const { prefix } of FAMILIES) {
    for (const part of ["", "-save", "-restore"]) {
      symlinkSync(`/usr/sbin/${prefix}tables-${backEnd}${part}`, join(folder, `${prefix}tables${part}`));
    }
  }
  return { PATH: `${folder}:${process.env.PATH}`, XTABLES_LOCKFILE: join(folder, "xtables.lock") };
}

async function startNode(t: TestContext, mode: string, env: NodeJS.ProcessEnv) {
  const node = await conformanceNode("saved");
  t.after(() => node.remove());
  const config = { mode, clusterCIDR: "10.180.0.0/16,fd00:10:180::/64", iptables: { masqueradeBit: 14 } };
  const daemon = await ProxyDaemon.start(node, { config, hostnameOverride: "node-a", objects: OBJECTS, env });
  t.after(() => daemon.dispose());
  return { node, daemon };
}

async function rendered(daemon: ProxyDaemon, ...options: readonly string[]): Promise<string> {
  const parts: string[] = [];
  const output = { out: (text: string) => void parts.push(text), err: (text: string) => assert.fail(text) };
  const args = ["-f", daemon.manifests, "--config", join(daemon.folder, "config.json"), ...options, ...lacking(daemon)];
  assert.equal(await render([...args, "--hostname-override", "node-a", "-o", "iptables-save"], output), 0);
  return parts.join("");
}

/** This kernel may lack the counters. */
function lacking(daemon: ProxyDaemon): readonly string[] {
  return daemon.log.includes("Kernel has no nfacct counters") ? ["--without", "nfacct"] : [];
}

/** Table by table: the kernel decides which tables there are, and in which order the tool prints them. */
async function savedOn(node: NetworkNamespace, tool: string, tables: readonly string[]): Promise<string> {
  const parts = await Promise.all(tables.map(async (table) => (await node.exec([tool, "-t", table])).stdout));
  return parts.join("");
}

/** Without comments, counters, and the ports that the proxy of userspace mode found free. */
function comparable(saved: string): string {
  return saved
    .replaceAll(/^#.*\n/gm, "")
    .replaceAll(/ \[\d+:\d+\]$/gm, "")
    .replaceAll(/(--to-ports |--to-destination (?:10\.200\.0\.2|\[fd00:200::2\]):)\d+$/gm, "$1PORT")
    .replaceAll(/^(-A KUBE-NODEPORT-NON-LOCAL .*--dport )\d+/gm, "$1PORT");
}

for (const backEnd of ["nft", "legacy"] as const) {
  for (const mode of ["iptables", "userspace"] as const) {
    test(`${mode} mode, ${backEnd} back end: the node prints what is rendered`, { skip: kernelSkip }, async (t) => {
      const { node, daemon } = await startNode(t, mode, toolsOf(t, backEnd));
      const tables = mode === "iptables" ? ["mangle", "filter", "nat"] : ["filter", "nat"];
      for (const { option, prefix } of FAMILIES) {
        const tool = `${prefix}tables-${backEnd}-save`;
        if (mode === "iptables") {
          await daemon.until("the canary", async () =>
            (await savedOn(node, tool, ["nat"])).includes(":KUBE-PROXY-CANARY "),
          );
        }
        const expected = comparable(await rendered(daemon, "--family", option));
        assert.ok(expected.split("\n").length > 40, expected);
        assert.equal(comparable(await savedOn(node, tool, tables)), expected, option);
      }
    });
  }
}

test("the comparison of the help finds what differs, and nothing else", { skip: kernelSkip }, async (t) => {
  const { node, daemon } = await startNode(t, "iptables", toolsOf(t, "nft"));
  // A change is written as a difference: rules of new Services come first on the node. Others have rules there, too.
  const saved = async () => (await node.exec(["iptables-save"])).stdout;
  const before = await saved();
  daemon.writeObjects(OBJECTS.filter((_, index) => index !== 2));
  await daemon.until("a service to go", async () => (await saved()).length < before.length);
  daemon.writeObjects(OBJECTS);
  await daemon.until(
    "the service to come",
    async () => (await saved()).split("\n").length >= before.split("\n").length,
  );
  await daemon.until("the canary", async () => (await saved()).includes("KUBE-PROXY-CANARY"));
  await node.exec(["iptables", "-t", "nat", "-N", "KUBE-KUBELET-CANARY"]);
  await node.exec(["iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.180.0.0/24", "-j", "MASQUERADE"]);

  const usage = usageOf(render.line);
  const recipe = usage.slice(usage.indexOf("ours()"), usage.indexOf("\n\nExit status"));
  writeFileSync(
    join(daemon.folder, "cluster.yaml"),
    JSON.stringify({ kind: "List", apiVersion: "v1", items: OBJECTS }),
  );
  const script = recipe
    .replace("kube-proxy render", `'${KUBE_PROXY}' render --config config.json ${lacking(daemon).join(" ")}`)
    .replace("--node NODE", "--node node-a")
    .replace("ssh NODE", `ip netns exec ${node.name}`);
  // A shell complains of a language that the machine does not have.
  const compare = () => run("env", ["LC_ALL=C", "bash", "--norc", "-c", `${script}; true`], { cwd: daemon.folder });
  assert.notEqual(comparable(await saved()), comparable(before));
  assert.deepEqual(await compare(), { stdout: "", stderr: "" });
  await node.exec(["iptables", "-t", "nat", "-I", "KUBE-SERVICES", "-s", "10.9.9.9/32", "-j", "RETURN"]);
  const { stdout } = await compare();
  assert.match(stdout, /^\d+a\d+\n> -A KUBE-SERVICES -s 10\.9\.9\.9\/32 -j RETURN\n$/);
});
