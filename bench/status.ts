/**
 * `npm run bench -- status`: how soon a daemon's inspect socket answers while changes come at a steady rate, what `kube-proxy status`
 * takes in all beside the start of Node.js alone, and what the whole service table costs the daemon.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { askDaemon } from "../src/cli/inspect-socket-client.ts";
import { serveInspectSocket } from "../src/daemon/inspect-socket.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { HEALTHY } from "../src/server/testing/healthy-verdict.ts";
import { SyncJournal } from "../src/sync/journal/sync-journal.ts";
import { measureBurst } from "./burst.ts";
import type { Bench } from "./driver.ts";
import { type Latency, withLatency } from "./latency.ts";
import { toolsCpuMs } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import { figuresTable, judgeFigures, ms, type Row, timed } from "./table.ts";
import { inWorker } from "./workers.ts";

const PROGRAM = fileURLToPath(new URL("../dist/bundle/main.js", import.meta.url));
const ENDPOINTS_EACH = 5;
const COMMANDS = 20;
const PAUSE_MS = 10;

interface StatusTask {
  readonly services: number;
  /** Changes a second. */
  readonly rate: number;
  readonly seconds: number;
}

interface StatusFigures extends StatusTask {
  /** From the question to the answer, each over a connection of its own, as seen by another process. */
  readonly answers: Latency;
  /** Of the changes meanwhile. */
  readonly changeP99Ms: number;
  /** Processor time of `kube-proxy status`, and of Node.js that does nothing. */
  readonly commandCpuMs: number;
  readonly nodeCpuMs: number;
  /** Until the whole service table was read, while nothing changed. */
  readonly tableMs: number;
}

const ROWS: readonly Row<StatusFigures>[] = [
  ["answers, ms, p50 / p99", ({ answers }) => answers],
  ["  p99", ({ answers }) => answers.p99, ms, 50],
  ["  at most", ({ answers }) => answers.maxMs],
  ["changes meanwhile, p99, ms", ({ changeP99Ms }) => changeP99Ms],
  ["the command, processor time, ms", ({ commandCpuMs }) => commandCpuMs],
  ["  Node.js alone", ({ nodeCpuMs }) => nodeCpuMs],
  ["the service table, ms", ({ tableMs }) => tableMs],
];

export const bench: Bench = {
  name: "status",
  about:
    "The inspect socket of a daemon (nftables mode, flat layout) while endpoints change. Needs root and `npm run build`.",
  options: {
    quick: { help: "one small size" },
    sizes: { value: "N,…", initial: "1000,10000", quick: "1000", help: "services" },
    rate: { value: "N", initial: "1000", help: "changes a second" },
    seconds: { value: "N", initial: "10", quick: "2", help: "for each size" },
  },
  async run(given) {
    const results: StatusFigures[] = [];
    for (const services of given.wholes("sizes")) {
      const task: StatusTask = { services, rate: given.whole("rate"), seconds: given.whole("seconds") };
      results.push(await inWorker("status", task));
    }
    const columns = results.map(({ services, rate }) => `${services} services, ${rate} changes/s`);
    console.log(figuresTable("", columns, results, ROWS));
    return { verdicts: judgeFigures(columns, results, ROWS), figures: { results } };
  },
  worker: measure,
};

const SYNCED = {
  isInitialised: true,
  isSyncing: false,
  needsFullSync: false,
  isFailing: false,
  failures: [],
  remarks: [],
};

/** One size, in this process's network namespace. */
async function measure(task: StatusTask): Promise<StatusFigures> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-status-"));
  const subject = new NftSubject(ENDPOINTS_EACH, "Flat");
  subject.load(task.services);
  await subject.fullSync();
  const socketPath = join(folder, "socket");
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
  const closed = serveInspectSocket(socketPath, daemon, { log: silentLogger, signal: stop.signal });
  try {
    const asked = { socketPath, path: "/status", pauseMs: PAUSE_MS };
    const [burst, answers] = await withLatency(asked, () => measureBurst(subject, task.rate, task.seconds));
    const commandCpuMs = await cpuOf([PROGRAM, "status", "--socket", socketPath]);
    const nodeCpuMs = await cpuOf(["-e", "0"]);
    const tableMs = await timed(() => askDaemon(socketPath, "/services"));
    return { ...task, answers, changeP99Ms: burst.latency.p99, commandCpuMs, nodeCpuMs, tableMs };
  } finally {
    stop.abort();
    await closed;
    await subject.close();
    rmSync(folder, { recursive: true });
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
