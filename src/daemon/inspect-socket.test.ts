import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { memoryLog } from "../server/testing/memory-log.ts";
import { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { InspectedDaemon } from "./inspect-report.ts";
import { serveInspectSocket } from "./inspect-socket.ts";

const DAEMON: InspectedDaemon = {
  program: "kube-proxy-ts",
  mode: "nftables",
  node: "node-a",
  zone: () => undefined,
  families: [],
  verdict: () => ({ nowMs: 0, isHealthy: true, isNodeEligible: true, families: [], failures: [], degraded: [] }),
  journal: new SyncJournal(),
  limits: () => [],
};

function ask(socketPath: string, path: string, method = "GET"): Promise<{ status: number; body: unknown }> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, path, method, signal: AbortSignal.timeout(5_000) }, async (response) => {
      let text = "";
      for await (const bytes of response) text += String(bytes);
      resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) });
    });
    asking.once("error", reject).end();
  });
}

test("what is no path of the inspect socket is answered with what can be asked, and the daemon goes on", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inspect-socket-"));
  const path = join(folder, "s");
  const stop = new AbortController();
  const serving = serveInspectSocket(path, DAEMON, { log: memoryLog(), signal: stop.signal });
  try {
    const wrong = { status: 404, body: { error: "ask GET /status, /services or /journal" } };
    for (const target of ["//", "///x", "http://[", "*", "/%zz", "/", "/status/"]) {
      assert.deepEqual(await ask(path, target), wrong, target);
    }
    assert.deepEqual(await ask(path, "/status", "POST"), wrong);
    assert.deepEqual(await ask(path, "/services?service=shop/web"), { status: 200, body: [] });
    const { status, body } = await ask(path, "/status?x=//");
    assert.equal(status, 200);
    assert.match(JSON.stringify(body), /"node":"node-a"/);
  } finally {
    stop.abort();
    await serving;
    rmSync(folder, { recursive: true });
  }
});
