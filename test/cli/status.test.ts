/** `status` and `services`, asked of the inspect socket as the daemon serves it, in this process. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { services } from "../../src/cli/services.ts";
import { status } from "../../src/cli/status.ts";
import { recordingLog } from "../../src/cluster/apiserver/testing/recording-log.ts";
import { projectObjects } from "../../src/cluster/manifests/read-manifests.ts";
import { serveInspectSocket } from "../../src/daemon/inspect-socket.ts";
import { offlineState } from "../../src/inspect/offline-state.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { SyncJournal } from "../../src/sync/journal/sync-journal.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const SYNCED = { isInitialised: true, isSyncing: false, needsFullSync: false, isFailing: false, failures: [] };

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "kpts-socket-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

/** A daemon for the examples at this path. */
function daemonAt(t: TestContext, path: string, failures: { subject: string; reason: string }[] = []) {
  const objects = projectObjects([JSON.parse(examplesAsJson())]);
  const options = { family: "IPv4", nodeName: "node-a", allowExternalIPs: true, log: silentLogger } as const;
  const { state } = offlineState(objects, options);
  const stop = new AbortController();
  const daemon = {
    program: "kube-proxy-ts 1.2.3",
    mode: "nftables",
    node: "node-a",
    zone: () => "zone-1",
    families: [{ family: "IPv4", state, status: SYNCED }],
    verdict: () => ({
      nowMs: 5_000,
      isHealthy: true,
      isNodeEligible: true,
      families: [{ family: "IPv4" as const, lastUpdatedMs: 3_000, isHealthy: true }],
      failures,
    }),
    journal: new SyncJournal(),
  };
  const closed = serveInspectSocket(path, daemon, { log: silentLogger, signal: stop.signal });
  const end = async () => {
    stop.abort();
    await closed;
  };
  t.after(end);
  return { end };
}

test("a daemon's state and service table, over a socket for its user alone", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  const { end } = daemonAt(t, path);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const healthy = await runCommand(status, ["--socket", path]);
  assert.deepEqual([healthy.status, healthy.err], [0, ""]);
  assert.match(
    healthy.out,
    /^kube-proxy-ts 1\.2\.3, nftables mode, on node-a\nhealthy\nIPv4: \d+ service ports, \d+ endpoints, last sync 2\.0 s ago\n$/,
  );
  const table = await runCommand(services, ["--socket", path, "--no-traffic"]);
  assert.match(table.out, /^shop\/web:http TCP +10\.96\.0\.10:80 +10\.180\.0\.11:8080 +33\.3 %/m);
  assert.match(
    table.out,
    /^office\/node-agent:grpc TCP +10\.96\.0\.61:9000 \(drop\) +10\.180\.1\.53:9000 +0 % Local$/m,
  );
  const one = JSON.parse((await runCommand(services, ["shop/storefront", "--socket", path, "-o", "json"])).out);
  assert.deepEqual(
    one.map(({ servicePort }: { servicePort: string }) => servicePort),
    ["shop/storefront:https"],
  );
  await end();
  assert.equal(existsSync(path), false);
});

test("what was refused makes the status 1, and is safe to print", async (t) => {
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path, [{ subject: "shop/web:http", reason: "no \u001b[31mspace" }]);
  const { status: code, out } = await runCommand(status, ["--socket", path]);
  assert.equal(code, 1);
  assert.match(out, /refused: shop\/web:http: no \\x1b\[31mspace\n$/);
});

test("a socket that was left behind is replaced, a file is not; the daemon goes on without", async (t) => {
  const at = folder(t);
  const left = join(at, "left.sock");
  await new Promise<void>((resolve) => {
    const server = createServer().listen(left, resolve);
    server.unref();
    t.after(() => server.close());
  });
  daemonAt(t, left);
  assert.equal((await runCommand(status, ["--socket", left])).status, 0);
  const file = join(at, "file");
  writeFileSync(file, "mine");
  const log = recordingLog();
  const families = [] as const;
  const verdict = () => ({ nowMs: 0, isHealthy: true, isNodeEligible: true, families: [], failures: [] });
  const journal = new SyncJournal();
  const daemon = { program: "", mode: "", node: "", zone: () => undefined, families, verdict, journal };
  await serveInspectSocket(file, daemon, { log, signal: new AbortController().signal });
  assert.ok(existsSync(file));
  assert.match(JSON.stringify(log.lines), /Cannot open the inspect socket/);
});

test("bad input: status 2, and words that help", async (t) => {
  const refusal = async (command: typeof status, ...args: string[]) => {
    const { status: code, out, err } = await runCommand(command, args);
    assert.deepEqual({ code, out }, { code: 2, out: "" });
    return err;
  };
  assert.match(await refusal(status), /status needs --socket/);
  assert.match(
    await refusal(status, "--socket", "/nonexistent"),
    /no answer at \/nonexistent: .*\nIs the daemon running with --inspect-socket/,
  );
  const path = join(folder(t), "kube-proxy.sock");
  daemonAt(t, path);
  assert.match(await refusal(services, "shop/nothing", "--socket", path), /the daemon has no Service "shop\/nothing"/);
});
