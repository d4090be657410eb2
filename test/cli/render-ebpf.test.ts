/** What `render` prints in ebpf mode besides the rules. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runKubeProxy } from "./run-kube-proxy.ts";

const EXAMPLES = ["render", "-f", "examples", "--hostname-override", "node-a", "--mode", "ebpf", "--family", "ipv4"];

test("where sockets are led, for one Service", async () => {
  const { stdout } = await runKubeProxy([...EXAMPLES, "-o", "sockets", "--service", "shop/admin"]);
  assert.deepEqual(stdout.split("\n"), [
    "TCP *:30082 leads to 10.180.0.12:8080 10.180.1.11:8080 # shop/admin:http",
    "TCP 10.96.0.31:80 leads to 10.180.0.12:8080 10.180.1.11:8080 # shop/admin:http",
    "TCP 203.0.113.31:80 takes the rules # shop/admin:http",
    "",
  ]);
});

test("the programs, each with its hook", async () => {
  const { stdout } = await runKubeProxy([...EXAMPLES, "-o", "programs"]);
  const hooks = stdout.split("\n").filter((line) => /^[a-z]/.test(line));
  assert.deepEqual(hooks, [
    "sock_release kpts_release4",
    "getpeername6 kpts_peer4m",
    "getpeername4 kpts_peer4",
    "recvmsg6 kpts_recvmsg4m",
    "recvmsg4 kpts_recvmsg4",
    "sendmsg4 kpts_sendmsg4",
    "connect6 kpts_connect4m",
    "connect4 kpts_connect4",
  ]);
  assert.match(stdout, /^connect4 kpts_connect4\n {2}\d+ instructions; .*frontends4 node_addrs4/m);
});

test("with node ports that are held, the programs that refuse them, too", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const head = { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" };
  const config = join(folder, "config.json");
  writeFileSync(config, JSON.stringify({ ...head, mode: "ebpf", ebpf: { holdNodePorts: true } }));
  const { stdout } = await runKubeProxy(["render", "-f", "examples", "--config", config, "-o", "programs"]);
  const names = ["post_bind4 kpts_bind4", "post_bind6 kpts_bind4m", "post_bind6 kpts_bind6"];
  const found = names.map((name) => stdout.split("\n").filter((line) => line === name).length);
  assert.deepEqual(found, [1, 1, 1]);
});
