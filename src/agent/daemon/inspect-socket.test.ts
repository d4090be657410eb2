import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { HEALTHY } from "../server/testing/healthy-verdict.ts";
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
  verdict: () => HEALTHY,
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
    const wrong = {
      status: 404,
      body: { error: "ask GET /status, /configuration, /services, /ports, /connections or /journal" },
    };
    for (const target of ["//", "///x", "http://[", "*", "/%zz", "/", "/status/"]) {
      assert.deepEqual(await ask(path, target), wrong, target);
    }
    assert.deepEqual(await ask(path, "/status", "POST"), wrong);
    for (const lists of ["/services", "/ports"])
      assert.deepEqual(await ask(path, `${lists}?service=shop/web`), { status: 200, body: [] });
    const { status, body } = await ask(path, "/status?x=//");
    assert.equal(status, 200);
    assert.match(JSON.stringify(body), /"node":"node-a"/);
  } finally {
    stop.abort();
    await serving;
    rmSync(folder, { recursive: true });
  }
});

test("a path that cannot be had is named with what is in the way, and a file there stays", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inspect-socket-"));
  const file = join(folder, "file");
  writeFileSync(file, "text");
  const log = memoryLog();
  const { signal } = new AbortController();
  for (const path of [file, join(folder, "none", "s"), join(folder, "s".repeat(108))]) {
    await serveInspectSocket(path, DAEMON, { log, signal });
  }
  const refused = "Cannot open the inspect socket; continuing without it";
  const [first, second, third] = log.errors;
  assert.equal(first, `${refused}: a file that is not a socket is there, and is left alone`);
  assert.equal(second, `${refused}: there is no folder ${join(folder, "none")}`);
  assert.match(third ?? "", /a socket path has at most 107 bytes, this one has \d+$/);
  assert.equal(readFileSync(file, "utf8"), "text");
  rmSync(folder, { recursive: true });
});

test("what cannot be found out is an error of that answer alone: the daemon goes on", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "inspect-socket-"));
  const path = join(folder, "s");
  const stop = new AbortController();
  let isBroken = true;
  const limits = () => {
    if (isBroken) throw new Error("EMFILE: too many open files");
    return [];
  };
  const serving = serveInspectSocket(path, { ...DAEMON, limits }, { log: memoryLog(), signal: stop.signal });
  try {
    assert.deepEqual(await ask(path, "/status"), { status: 500, body: { error: "EMFILE: too many open files" } });
    isBroken = false;
    // It reads a file, for which a daemon at its open-files limit has no descriptor left.
    t.mock.method(process.memoryUsage, "rss", () => {
      throw new Error("EMFILE: too many open files, uv_resident_set_memory");
    });
    const { status, body } = await ask(path, "/status");
    assert.equal(status, 200);
    assert.match(JSON.stringify(body), /"residentBytes":\d{7,}\b/);
  } finally {
    stop.abort();
    await serving;
    rmSync(folder, { recursive: true });
  }
});
