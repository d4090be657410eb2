/** `kube-proxy monitor`: the journal of a daemon over its socket, for readers of every speed. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import type { SyncRecord } from "../../src/agent/daemon/inspect-socket.ts";
import { serveInspectSocket } from "../../src/agent/daemon/inspect-socket.ts";
import { HEALTHY } from "../../src/agent/server/testing/healthy-verdict.ts";
import { SyncJournal } from "../../src/agent/sync/journal/sync-journal.ts";
import { createServer } from "../../src/kernel/node-http.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { monitor } from "../../src/tools/cli/monitor.ts";
import { runCommand } from "./run-command.ts";

const RECORD: Omit<SyncRecord, "number"> = {
  family: "IPv4",
  endedMs: Date.UTC(2026, 0, 1, 10, 12, 3, 45),
  isFullSync: false,
  causes: [
    { kind: "object", object: "EndpointSlice", change: "update", namespace: "shop", name: "web-x", service: "web" },
    { kind: "repair", servicePorts: 2, by: "nft\u001b[31m" },
  ],
  furtherCauses: 3,
  servicePorts: 1,
  stages: { waiting: 100.4, model: 0.04, rules: 1.96, kernel: 1.25, after: 0 },
  written: { "add element": 2, "delete element": 0 },
  result: "refused",
  failures: [{ subject: "shop/web:http", reason: "no space" }],
  furtherFailures: 0,
};

/** A daemon's socket with a journal. */
function daemonWith(t: TestContext, journal: SyncJournal) {
  const folder = mkdtempSync(join(tmpdir(), "kpts-monitor-"));
  const path = join(folder, "kube-proxy.sock");
  const stop = new AbortController();
  const verdict = () => HEALTHY;
  const daemon = {
    program: "",
    mode: "",
    node: "",
    zone: () => undefined,
    families: [],
    verdict,
    journal,
    limits: () => [],
  };
  const closed = serveInspectSocket(path, daemon, { log: silentLogger, signal: stop.signal });
  const end = async () => {
    stop.abort();
    await closed;
  };
  t.after(async () => {
    await end();
    rmSync(folder, { recursive: true });
  });
  return { path, end };
}

test("each sync in words: causes, what was written, milliseconds; safe for a terminal", async (t) => {
  const journal = new SyncJournal();
  const { path } = daemonWith(t, journal);
  journal.add(RECORD);
  const { status, out, err } = await runCommand(monitor, ["--socket", path, "--last", "5", "--count", "1"]);
  assert.deepEqual([status, err], [0, ""]);
  assert.equal(
    out,
    [
      "10:12:03.045 IPv4 EndpointSlice shop/web-x of shop/web updated",
      "                  rules of 2 service ports destroyed by nft\\x1b[31m",
      "                  and 3 more",
      "    REFUSED: 1 service port changed, wrote add element ×2; " +
        "102 ms: waited 100, model 0.04, rules 2 (kernel 1.3), after 0",
      "    refused: shop/web:http: no space",
      "",
    ].join("\n"),
  );
});

test("on a terminal alone colour, and lines that fit; the same words", async (t) => {
  const journal = new SyncJournal();
  const { path } = daemonWith(t, journal);
  journal.add(RECORD);
  const ask = ["--socket", path, "--last", "1", "--follow", "--count", "1"];
  const { out: plain } = await runCommand(monitor, ask);
  let painted = "";
  let said = "";
  await monitor(ask, {
    out: (text) => {
      painted += text;
    },
    err: (text) => {
      said += text;
    },
    terminal: { hasColour: true, width: 80 },
  });
  assert.equal(said, "Waiting for syncs; Ctrl-C ends it.\n");
  const words = (text: string): string => text.replaceAll(/\s+/g, " ");
  assert.equal(words(stripVTControlCharacters(painted)), words(plain));
  for (const line of stripVTControlCharacters(painted).split("\n")) assert.ok(line.length <= 80, line);
  assert.ok(painted.includes("\u001b[31mREFUSED") && painted.includes("\u001b[33mdestroyed by"), painted);
});

test("what happens from now on, as JSON lines, until the daemon ends", async (t) => {
  const journal = new SyncJournal();
  journal.add(RECORD);
  const { path, end } = daemonWith(t, journal);
  const lines: SyncRecord[] = [];
  let said = "";
  const output = {
    out(text: string) {
      lines.push(JSON.parse(text));
      if (lines.length === 1) journal.add({ ...RECORD, result: "done" });
      else void end();
    },
    err(text: string) {
      said += text;
    },
  };
  const status = await monitor(["--socket", path, "-o", "json", "--last", "1", "--follow"], output);
  assert.deepEqual(
    lines.map(({ number, result }) => [number, result]),
    [
      [1, "refused"],
      [2, "done"],
    ],
  );
  assert.deepEqual([status, said], [0, "The daemon has ended.\n"]);
});

test("--last ends after the last syncs, however few there are", async (t) => {
  const journal = new SyncJournal();
  const { path } = daemonWith(t, journal);
  const numbers = async (last: string) => {
    const { status, out, err } = await runCommand(monitor, ["--socket", path, "-o", "json", "--last", last]);
    assert.deepEqual([status, err], [0, ""]);
    return out.split("\n").flatMap((line) => (line === "" ? [] : (JSON.parse(line) as SyncRecord).number));
  };
  assert.deepEqual(await numbers("5"), []);
  for (let sync = 0; sync < 100; sync += 1) journal.add(RECORD);
  assert.deepEqual(await numbers("2"), [99, 100]);
  assert.deepEqual(await numbers("0"), []);
  assert.equal((await numbers("500")).length, 100, "more than are written at once");
  while (journal.readers > 0) await sleep(5);
});

test("a reader that does not read holds up nothing and costs nothing; later it is told how much it has missed", async (t) => {
  const journal = new SyncJournal();
  const { path, end } = daemonWith(t, journal);
  const socket = connect(path);
  socket.pause();
  socket.write("GET /journal HTTP/1.0\r\n\r\n");
  while (journal.readers === 0) await sleep(5);
  for (let round = 0; round < 60; round += 1) {
    for (let index = 0; index < 100; index += 1) journal.add(RECORD);
    await sleep(25);
  }
  let received = "";
  socket.on("data", (bytes) => {
    received += String(bytes);
    if (received.includes(`"number":${journal.last},`)) void end();
  });
  socket.resume();
  await once(socket, "close");
  const lines = received.split("\r\n\r\n")[1]?.trimEnd().split("\n") ?? [];
  const parsed = lines.map((line) => JSON.parse(line) as { missed?: number });
  const missed = parsed.reduce((sum, line) => sum + (line.missed ?? 0), 0);
  const read = parsed.filter((line) => line.missed === undefined).length;
  assert.ok(missed > 1000, `${missed} missed`);
  assert.equal(read + missed, 6000);
  assert.equal(journal.readers, 0);
});

test("bad input: status 2, and words that help", async (t) => {
  const refusal = async (...args: string[]) => {
    const { status, out, err } = await runCommand(monitor, args);
    assert.deepEqual({ status, out }, { status: 2, out: "" });
    return err;
  };
  assert.match(await refusal(), /no answer at \/run\/kube-proxy\/inspect\.sock/);
  assert.match(await refusal("--socket", "/nonexistent"), /no answer at \/nonexistent: .*\nIs the daemon running/);
  assert.match(await refusal("--socket", "x", "--last", "-1"), /--last must be a number|needs a value/);
  const folder = mkdtempSync(join(tmpdir(), "kpts-monitor-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "old.sock");
  const old = createServer((_request, response) => response.writeHead(404).end("{}"));
  t.after(() => old.close());
  old.listen(path);
  await once(old, "listening");
  assert.match(await refusal("--socket", path), /has no journal: is it of another version/);
});
