/**
 * `npm run bench -- status`: how soon a daemon's inspect socket answers while changes come at a steady rate, the cost
 * of `kube-proxy status` compared with starting Node.js alone, and the cost of the whole service table to the daemon.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { serveInspectSocket } from "../src/agent/daemon/inspect-socket.ts";
import { HEALTHY } from "../src/agent/server/testing/healthy-verdict.ts";
import { SyncJournal } from "../src/agent/sync/journal/sync-journal.ts";
import { SYNCED } from "../src/agent/sync/testing/synced-status.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { askDaemon } from "../src/tools/cli/inspect-socket-client.ts";
import { BUILT_MAIN } from "../testkit/needs/built-program.ts";
import { measureBurst } from "./burst.ts";
import type { Bench } from "./driver.ts";
import { withLatency } from "./latency.ts";
import { toolsCpuMs } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import { type Figures, Notes, timed } from "./table.ts";

const ENDPOINTS_EACH = 5;
const COMMANDS = 20;
const PAUSE_MS = 10;
/** Target for an answer while there are changes. */
const ANSWER_MS = 50;

interface StatusTask {
  readonly services: number;
  /** Changes per second. */
  readonly rate: number;
  readonly seconds: number;
}

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
  tasks: (given) =>
    Object.fromEntries(
      given.wholes("sizes").map((services) => {
        const task: StatusTask = { services, rate: given.whole("rate"), seconds: given.whole("seconds") };
        return [`${services} services, ${task.rate} changes/s`, [task]];
      }),
    ),
  worker: measure,
};

/** One size, in this process's network namespace. */
async function measure(task: StatusTask): Promise<Figures> {
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
    const notes = new Notes();
    // From request to answer, as seen by another process.
    notes.add("answers", answers);
    notes.add("answers, p99", answers.p99, ANSWER_MS);
    notes.add("changes meanwhile", burst.latency);
    notes.add("the command, processor time", await cpuOf([BUILT_MAIN, "status", "--socket", socketPath]));
    notes.add("  Node.js alone", await cpuOf(["-e", "0"]));
    notes.add("the whole service table, while nothing changes", await timed(() => askDaemon(socketPath, "/services")));
    return notes.figures;
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
    // The kernel adds a child's time once it has been waited for.
    await sleep(1);
  }
  return (toolsCpuMs() - before) / COMMANDS;
}
