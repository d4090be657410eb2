/** One size, in a fresh namespace: the socket of the daemon over the nftables mode. Argument: a StatusTask as JSON. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { askDaemon } from "../src/cli/inspect-socket-client.ts";
import { serveInspectSocket } from "../src/daemon/inspect-socket.ts";
import { signalChild } from "../src/kernel/child-process.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { HEALTHY } from "../src/server/testing/healthy-verdict.ts";
import { SyncJournal } from "../src/sync/journal/sync-journal.ts";
import { toolsCpuMs } from "./memory.ts";
import { measureBurst } from "./nftables-burst.ts";
import { NftSubject } from "./nftables-subject.ts";
import type { StatusFigures, StatusTask } from "./status.ts";
import { timed } from "./table.ts";

const POLLER = fileURLToPath(new URL("./status-poller.ts", import.meta.url));
const PROGRAM = fileURLToPath(new URL("../dist/bundle/main.js", import.meta.url));
const ENDPOINTS_EACH = 5;
const COMMANDS = 20;
const SYNCED = {
  isInitialised: true,
  isSyncing: false,
  needsFullSync: false,
  isFailing: false,
  failures: [],
  remarks: [],
};

async function measure(task: StatusTask, folder: string): Promise<StatusFigures> {
  const subject = new NftSubject(ENDPOINTS_EACH, "Flat");
  subject.load(task.services);
  await subject.fullSync(false);
  const path = join(folder, "socket");
  const stop = new AbortController();
  const daemon = {
    program: "bench",
    mode: "nftables",
    node: "node",
    zone: () => undefined,
    families: [{ family: "IPv4" as const, state: subject.state, status: SYNCED }],
    verdict: () => HEALTHY,
    journal: new SyncJournal(),
    limits: () => [],
  };
  const closed = serveInspectSocket(path, daemon, { log: silentLogger, signal: stop.signal });
  const poller = spawn(process.execPath, [POLLER, path], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const lines = createInterface({ input: poller.stdout })[Symbol.asyncIterator]();
    await lines.next();
    const burst = await measureBurst(subject, {
      layout: "Flat",
      services: task.services,
      endpointsEach: ENDPOINTS_EACH,
      parts: [],
      changes: 0,
      nftChanges: 0,
      trials: 0,
      limitMs: 0,
      burstSeconds: task.seconds,
      burstRate: task.rate,
    });
    poller.stdin.end();
    const answers = JSON.parse((await lines.next()).value ?? "");
    const commandCpuMs = await cpuOf([PROGRAM, "status", "--socket", path]);
    const nodeCpuMs = await cpuOf(["-e", "0"]);
    const tableMs = await timed(() => askDaemon(path, "/services"));
    return { ...task, ...answers, changeP99Ms: burst.latency.p99, commandCpuMs, nodeCpuMs, tableMs };
  } finally {
    signalChild(poller);
    stop.abort();
    await closed;
    await subject.close();
  }
}

/** Mean processor time of a run of Node.js. */
async function cpuOf(args: readonly string[]): Promise<number> {
  const before = toolsCpuMs();
  for (let run = 0; run < COMMANDS; run += 1) {
    const child = spawn(process.execPath, args, { stdio: "ignore" });
    const status = await new Promise((resolve) => child.on("close", resolve));
    if (status !== 0) throw new Error(`node ${args.join(" ")} ended with ${status}`);
    // The kernel adds a child's time when it has been waited for.
    await sleep(1);
  }
  return (toolsCpuMs() - before) / COMMANDS;
}

const task: StatusTask = JSON.parse(process.argv[2] ?? "{}");
const folder = mkdtempSync(join(tmpdir(), "kpts-bench-status-"));
try {
  writeSync(1, `${JSON.stringify(await measure(task, folder))}\n`);
} finally {
  rmSync(folder, { recursive: true });
}
