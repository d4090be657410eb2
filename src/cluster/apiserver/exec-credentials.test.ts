import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import type { ExecPlugin } from "./client-config.ts";
import { ExecCredentials, readExecCredential } from "./exec-credentials.ts";

const plugin: ExecPlugin = {
  apiVersion: "client.authentication.k8s.io/v1beta1",
  command: "/bin/sh",
  args: [],
  env: {},
  installHint: "",
  provideClusterInfo: false,
};

const run = (args: readonly string[], more: Partial<ExecPlugin> = {}) =>
  new ExecCredentials({
    plugin: { ...plugin, args, ...more },
    cluster: () => Promise.reject(new Error("not asked for")),
    clock: new FakeClock(),
  }).current();

test("a real program is started with the protocol's environment and its output used", async () => {
  const script = `printf '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"%s"}}' "$WHO"; test -n "$KUBERNETES_EXEC_INFO"`;
  assert.equal((await run(["-c", script], { env: { WHO: "me" } })).token, "me");
});

test("a program that fails or is missing is named with its last words and the hint", async () => {
  await assert.rejects(
    run(["-c", "echo first >&2; echo 'no login' >&2; exit 3"]),
    /exec plugin \/bin\/sh failed: exit status 3: no login/,
  );
  await assert.rejects(
    run([], { command: "/nowhere/plugin", installHint: "install it\nfrom there" }),
    /exec plugin \/nowhere\/plugin failed: there is no such program: install it from there/,
  );
});

test("output that is no ExecCredential is refused by field", () => {
  const good = { apiVersion: plugin.apiVersion, kind: "ExecCredential", status: { token: "t" } };
  const read = (value: unknown) => () => readExecCredential(JSON.stringify(value), plugin);
  assert.throws(() => readExecCredential("<html>", plugin), /did not print an ExecCredential/);
  assert.throws(read({ ...good, apiVersion: "client.authentication.k8s.io/v1" }), /apiVersion must be .*v1beta1/);
  assert.throws(read({ ...good, kind: "Pod" }), /kind must be ExecCredential, got "Pod"/);
  assert.throws(read({ ...good, status: null }), /status is missing/);
  assert.throws(read({ ...good, status: {} }), /neither token nor clientCertificateData/);
  assert.throws(read({ ...good, status: { clientCertificateData: "x" } }), /must come together/);
  assert.throws(read({ ...good, status: { token: "t", expirationTimestamp: "soon" } }), /expirationTimestamp.*"soon"/);
});
