/** Two daemons at one inspect socket. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { HEALTHY } from "../server/testing/healthy-verdict.ts";
import { memoryLog } from "../server/testing/memory-log.ts";
import { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { InspectedDaemon } from "./inspect-report.ts";
import { serveInspectSocket } from "./inspect-socket.ts";

const daemon = (node: string): InspectedDaemon => ({
  ...{ program: "kube-proxy-ts", mode: "nftables", node, zone: () => undefined, families: [] },
  ...{ verdict: () => HEALTHY, journal: new SyncJournal(), limits: () => [] },
});

const nodeAt = (socketPath: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const asking = request({ socketPath, path: "/status" }, async (response) => {
      let text = "";
      for await (const bytes of response) text += String(bytes);
      resolve(JSON.parse(text).node);
    });
    asking.once("error", reject).end();
  });

async function twoDaemons(endsFirst: "first" | "second"): Promise<string> {
  const path = join(mkdtempSync(join(tmpdir(), "inspect-socket-")), "s");
  const [first, second] = [new AbortController(), new AbortController()];
  const serving = [serveInspectSocket(path, daemon("first"), { log: memoryLog(), signal: first.signal })];
  await sleep(50);
  serving.push(serveInspectSocket(path, daemon("second"), { log: memoryLog(), signal: second.signal }));
  await sleep(50);
  (endsFirst === "first" ? first : second).abort();
  await sleep(50);
  let answer = "no socket";
  for (let left = 40; answer !== "second" && left > 0; left -= endsFirst === "first" ? 1 : 40) {
    if (endsFirst === "first") await sleep(50);
    if (existsSync(path)) answer = await nodeAt(path).catch(String);
  }
  first.abort();
  second.abort();
  await Promise.all(serving);
  rmSync(join(path, ".."), { recursive: true });
  return answer;
}

test("a second daemon that ends at once does not cost the first its socket", async () => {
  assert.equal(await twoDaemons("second"), "first");
});

test("a daemon that ends does not take its successor's socket away", async () => {
  assert.equal(await twoDaemons("first"), "second");
});
