/** `ebpf.hostNamespaceOnly`: what commands say about pods, whose connections then take the rules. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const directory = mkdtempSync(join(tmpdir(), "kpts-host-only-"));
after(() => rmSync(directory, { recursive: true }));
const config = join(directory, "config.json");
const head = { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" };
writeFileSync(config, JSON.stringify({ ...head, mode: "ebpf", ebpf: { hostNamespaceOnly: true } }));

const run = async (command: typeof trace, ...argv: readonly string[]): Promise<string> => {
  const { status, out, err } = await runCommand(command, ["-f", "-", "--config", config, ...argv], EXAMPLES);
  assert.equal(status, 0, out + err);
  return out;
};

test("render: the host is led, and pods take the rules", async () => {
  const of = ["--hostname-override", "node-a", "--family", "ipv4", "--service", "shop/admin"];
  const led = "leads the host to 10.180.0.12:8080 10.180.1.11:8080, and pods take the rules # shop/admin:http";
  assert.deepEqual((await run(render, ...of, "-o", "sockets")).split("\n"), [
    `TCP *:30082 ${led}`,
    `TCP 10.96.0.31:80 ${led}`,
    "TCP 203.0.113.31:80 takes the rules # shop/admin:http",
    "",
  ]);
});

test("trace: what a pod sends to a node port is masqueraded by the rules, and what the node sends is not", async () => {
  const to = ["--node", "node-a", "--to", "10.200.0.2:30082", "--new-client"];
  assert.match(await run(trace, "--from", "pod", ...to), /sent to 10\.180\.0\.12:8080, from the node's address \(masq/);
  assert.match(await run(trace, "--from", "node", ...to), /sent to 10\.180\.0\.12:8080, from 10\.200\.0\.2 \(kept\)/);
});

test("prove: the plan does what it is to do", async () => {
  const out = await run(proveCommand, "--node", "node-a", "--modes", "ebpf", "--family", "ipv4");
  assert.match(out, /^ebpf \(node-a, IPv4\): the rules treat every packet as the Services ask \(/m);
});
