import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { silentLogger } from "../../../../logging/logger.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { loadClientConfig } from "./load-client-config.ts";

const none = { kubeconfig: "", master: "", env: {}, log: silentLogger };

test("without kubeconfig and master the pod's own configuration is taken, and said so", async () => {
  const log = recordingLog();
  const env = { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "443" };
  const config = await loadClientConfig({ ...none, env, log });
  assert.equal(config.server.href, "https://[fd00::1]/");
  assert.deepEqual(config.authentication, {
    kind: "tokenFile",
    path: "/var/run/secrets/kubernetes.io/serviceaccount/token",
  });
  assert.deepEqual(
    log.lines.map(({ message }) => message),
    ["Neither kubeconfig file nor master URL was specified, falling back to in-cluster config"],
  );
});

test("outside of a pod the message says what is missing and what to do", async () => {
  await assert.rejects(
    loadClientConfig(none),
    /KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined.*--kubeconfig/,
  );
});

test("--master alone is a server without credentials", async () => {
  const config = await loadClientConfig({ ...none, master: "127.0.0.1:8080" });
  assert.equal(config.server.href, "http://127.0.0.1:8080/");
  assert.equal(config.authentication.kind, "none");
});

test("a kubeconfig that is missing or no YAML is named with its path", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-kubeconfig-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "config");
  await assert.rejects(loadClientConfig({ ...none, kubeconfig: path }), /cannot read the kubeconfig: ENOENT.*config/);
  writeFileSync(path, "clusters: [\n");
  await assert.rejects(loadClientConfig({ ...none, kubeconfig: path }), (error: Error) =>
    error.message.startsWith(`invalid configuration: kubeconfig ${path}: yaml: line`),
  );
  writeFileSync(
    path,
    "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {}}]\n",
  );
  assert.equal((await loadClientConfig({ ...none, kubeconfig: path })).server.hostname, "h");
});
