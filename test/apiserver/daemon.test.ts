/** The real program against the test API server, in a namespace, with the files of kubeadm as they are. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { inNetns } from "../support/in-netns.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { CONFIG_CONF, kubeconfigConf } from "./kubeadm-files.ts";
import { RESOURCE_TYPES } from "./resource-types.ts";
import { until } from "./source-under-test.ts";
import { nodeProxierRole, TestApiServer } from "./test-api-server.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const PATIENCE_MS = 30_000;

/** Lays the files out as the pod has them, in a mount namespace of the program's own, and becomes the program. */
const IN_POD = `
set -e
mount -t tmpfs none /var/lib && mkdir /var/lib/kube-proxy
cp "$FILES"/*.conf /var/lib/kube-proxy/
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io
ln -s "$FILES/serviceaccount" /run/secrets/kubernetes.io/serviceaccount
# The limit of connections is the whole machine's, and a namespace cannot raise it: let it look high enough.
echo 1048576 > "$FILES/conntrack_max"
mount --bind "$FILES/conntrack_max" /proc/sys/net/netfilter/nf_conntrack_max
exec "$@"
`;

interface Daemon {
  readonly child: ChildProcess;
  log(): string;
}

function startDaemon(t: TestContext, server: TestApiServer, config = CONFIG_CONF): Daemon {
  const files = mkdtempSync(join(tmpdir(), "kpts-kubeadm-"));
  mkdirSync(join(files, "serviceaccount"));
  writeFileSync(join(files, "config.conf"), config);
  writeFileSync(join(files, "kubeconfig.conf"), kubeconfigConf(server.url));
  writeFileSync(join(files, "serviceaccount/ca.crt"), server.authority.certificate);
  writeFileSync(join(files, "serviceaccount/token"), "pod-token");
  const program = [process.execPath, MAIN, "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=node-a"];
  const child = spawn("unshare", ["--mount", "sh", "-c", IN_POD, "sh", ...program], {
    env: { ...process.env, FILES: files },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    log += text;
  });
  t.after(() => {
    child.kill("SIGKILL");
    rmSync(files, { recursive: true });
  });
  return { child, log: () => log };
}

async function startServer(t: TestContext): Promise<TestApiServer> {
  const server = await TestApiServer.start();
  t.after(() => server.close());
  server.switches.tokens = new Map([["pod-token", "system:serviceaccount:kube-system:kube-proxy"]]);
  server.switches.isAllowed = nodeProxierRole(RESOURCE_TYPES);
  server.put("nodes", node("node-a"));
  server.put("servicecidrs", serviceCidr());
  server.put("services", service(1));
  server.put("endpointslices", slice(1));
  return server;
}

function rules(): string {
  return execFileSync("iptables-save", ["-t", "nat"], { encoding: "utf8" });
}

async function untilRules(daemon: Daemon, expected: RegExp): Promise<void> {
  const hasThem = () => expected.test(rules());
  await until(`rules that match ${expected}`, hasThem, PATIENCE_MS).catch((error: unknown) => {
    throw new Error(`${String(error)}; the log:\n${daemon.log()}\nthe rules:\n${rules()}`);
  });
}

inNetns(import.meta.url, { name: "apidaemon", timeoutMs: 120_000 }, () => {
  test("with kubeadm's files and permissions it programs what the API server has, and follows it", async (t) => {
    const server = await startServer(t);
    const daemon = startDaemon(t, server);
    await untilRules(daemon, /--to-destination 10\.128\.1\.1:8080/);
    server.put("endpointslices", slice(1, 1, 7));
    await untilRules(daemon, /--to-destination 10\.135\.1\.1:8080/);
    assert.match(daemon.log(), /"Starting service config controller"/);
    assert.match(daemon.log(), /"Caches are synced" controller="endpoint slice config"/);
    assert.doesNotMatch(daemon.log(), /Failed to watch/);
    await until("the event", () => server.store.objects("events").size > 0, PATIENCE_MS);
    const [event] = [...server.store.objects("events").values()];
    assert.deepEqual(event?.object.regarding, { apiVersion: "v1", kind: "Node", name: "node-a" });
    assert.equal(event?.object.reason, "Starting");
    const metrics = await (await fetch("http://127.0.0.1:10249/metrics")).text();
    assert.match(metrics, /^rest_client_requests_total\{code="200",method="GET",host="127\.0\.0\.1:\d+"\} 4$/m);
    const before = rules();
    server.cutConnections();
    server.store.compact();
    server.delete("services", service(1));
    await untilRules(daemon, /^(?![\s\S]*10\.135\.1\.1)/);
    assert.match(before, /10\.96\.0\.1\/32/);
    daemon.child.kill("SIGTERM");
    await until("the end", () => daemon.child.exitCode !== null, 4_000);
    assert.equal(daemon.child.exitCode, 0);
    assert.equal(server.connections, 0);
  });

  test("a kubeconfig that is not there ends the program with a line that says so", async (t) => {
    const server = await startServer(t);
    const daemon = startDaemon(t, server, CONFIG_CONF.replace("/kubeconfig.conf", "/other.conf"));
    await until("the end", () => daemon.child.exitCode !== null, PATIENCE_MS);
    assert.equal(daemon.child.exitCode, 1);
    assert.match(daemon.log(), /cannot read the kubeconfig: ENOENT.*\/var\/lib\/kube-proxy\/other\.conf/);
  });
});
