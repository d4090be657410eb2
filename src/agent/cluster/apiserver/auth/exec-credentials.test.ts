import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import type { ExecPlugin } from "../connection/client-config.ts";
import { CertificateAuthority } from "../testing/certificates.ts";
import { ExecCredentials, type ExecPluginObserver, readExecCredential, runProgram } from "./exec-credentials.ts";

const plugin: ExecPlugin = {
  apiVersion: "client.authentication.k8s.io/v1beta1",
  command: "/bin/sh",
  args: [],
  env: {},
  installHint: "",
  provideClusterInfo: false,
};

const cluster = () => Promise.reject(new Error("not asked for"));
const run = (args: readonly string[], more: Partial<ExecPlugin> = {}, observer?: ExecPluginObserver) =>
  new ExecCredentials({ plugin: { ...plugin, args, ...more }, cluster, clock: new FakeClock(), observer }).current();

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

test("a program that does not end is killed, also one that holds on to a signal", { timeout: 10_000 }, async () => {
  const stubborn = "trap '' TERM; echo begun; while :; do sleep 0.1; done";
  await assert.rejects(
    runProgram("/bin/sh", ["-c", stubborn], process.env, undefined, 300),
    /^Error: it did not end within 0\.3 s$/,
  );
});

test("an observer is told how calls end and which certificate follows which", async () => {
  const calls: unknown[] = [];
  const certificates: unknown[] = [];
  const observer: ExecPluginObserver = {
    pluginCalled: (...outcome) => calls.push(outcome),
    pluginCertified: (now, before) => certificates.push([now?.text, before?.text]),
  };
  await assert.rejects(run(["-c", "exit 3"], {}, observer));
  await assert.rejects(run([], { command: "/nowhere/plugin" }, observer));
  await assert.rejects(run(["-c", "echo no JSON"], {}, observer));
  assert.deepEqual(calls, [
    [3, "plugin_execution_error"],
    [1, "plugin_not_found_error"],
    [0, "no_error"],
  ]);

  const authority = new CertificateAuthority();
  const pairs = ["one", "one", "two"].map((commonName) => authority.issue({ commonName }));
  const [one, , two] = pairs;
  const printed = [one, one, two].map((pair) => {
    const status = { clientCertificateData: pair?.certificate, clientKeyData: pair?.key };
    return JSON.stringify({ apiVersion: plugin.apiVersion, kind: "ExecCredential", status });
  });
  const scripted = () => Promise.resolve(printed.shift() ?? "");
  const clock = new FakeClock();
  const credentials = new ExecCredentials({ plugin, cluster, clock, observer, run: scripted });
  for (const _ of pairs) {
    await credentials.current();
    credentials.expire();
    await clock.advance(5_000);
  }
  assert.deepEqual(certificates, [
    [one?.certificate, undefined],
    [two?.certificate, one?.certificate],
  ]);
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

test("a run ends with the last request that waits for it, and not before", { timeout: 10_000 }, async () => {
  const runs: AbortSignal[] = [];
  const printed = Promise.withResolvers<string>();
  const run = async (_file: string, _args: readonly string[], _env: NodeJS.ProcessEnv, signal?: AbortSignal) => {
    assert.ok(signal);
    runs.push(signal);
    return await printed.promise;
  };
  const credentials = new ExecCredentials({ plugin, cluster, clock: new FakeClock(), run });
  const [one, other, last] = [new AbortController(), new AbortController(), new AbortController()];
  const [first, second] = [credentials.current(one.signal), credentials.current(other.signal)];
  one.abort(new Error("stopped"));
  await assert.rejects(first, /stopped/);
  assert.equal(runs[0]?.aborted, false, "another waits");
  other.abort(new Error("stopped"));
  await assert.rejects(second, /stopped/);
  assert.equal(runs[0]?.aborted, true);
  const third = credentials.current(last.signal);
  printed.resolve(JSON.stringify({ apiVersion: plugin.apiVersion, kind: "ExecCredential", status: { token: "t" } }));
  assert.deepEqual([(await third).token, runs.length], ["t", 2]);
});

test("the program ends with its run, also one that holds on to a signal", { timeout: 10_000 }, async () => {
  const stop = new AbortController();
  const ended = runProgram("/bin/sh", ["-c", "trap '' TERM; exec sleep 60"], process.env, stop.signal);
  setTimeout(() => stop.abort(), 200);
  await assert.rejects(ended, /^Error: it was ended/);
});

test("refusals that follow each other fast run the program again at once, and then every five seconds", async () => {
  const clock = new FakeClock();
  let runs = 0;
  const run = async () =>
    JSON.stringify({ apiVersion: plugin.apiVersion, kind: "ExecCredential", status: { token: `t${++runs}` } });
  const credentials = new ExecCredentials({ plugin, cluster, clock, run });
  await credentials.current();
  credentials.expire();
  await credentials.current();
  assert.equal(runs, 2);
  for (let attempt = 0; attempt < 100; attempt++) {
    await clock.advance(600);
    credentials.expire();
    await credentials.current();
  }
  assert.ok(runs >= 12 && runs <= 14, `${runs} runs in a minute`);
});
