/**
 * Starts of the whole program, inside of a fresh namespace. Argument: a StartTask as JSON. Standard output: a StartResult as
 * one line of JSON.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { signalChild } from "../src/kernel/child-process.ts";
import { startApiServer } from "./api-server-child.ts";
import { writeDaemonFiles } from "./daemon-files.ts";
import { figuresOf } from "./memory.ts";
import type { FloorFigures, StartFigures, StartResult, StartTask } from "./start.ts";

const FLOOR = fileURLToPath(new URL("./start-floor.ts", import.meta.url));
const BATCHES = fileURLToPath(new URL("./start-batches.ts", import.meta.url));
const OWN = fileURLToPath(new URL("..", import.meta.url));
const SENT = /^sent (.+)\n/m;
const LIMIT_MS = 300_000;
const REST_MS = 700;
const LISTED = [/synced" controller="service config"/, /synced" controller="endpoint slice config"/];
const SYNCED = [/"SyncProxyRules complete" ipFamily="IPv4"/, /"SyncProxyRules complete" ipFamily="IPv6"/];

/** What a child has written so far, and a way to wait for more. */
class Output {
  text = "";
  readonly #child: ChildProcess;
  readonly #checks = new Set<() => void>();

  constructor(child: ChildProcess) {
    this.#child = child;
    const take = (text: string): void => {
      this.text += text;
      for (const check of this.#checks) check();
    };
    child.stdout?.setEncoding("utf8").on("data", take);
    child.stderr?.setEncoding("utf8").on("data", take);
  }

  /** Resolves in the moment in which the output matches all patterns. */
  has(patterns: readonly RegExp[]): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`waited too long:\n${this.text}`)), LIMIT_MS);
      const check = (): void => {
        if (!patterns.every((pattern) => pattern.test(this.text))) return;
        clearTimeout(timer);
        this.#checks.delete(check);
        resolve();
      };
      this.#child.once("exit", () => {
        clearTimeout(timer);
        setImmediate(() => reject(new Error(`the process ended:\n${this.text}`)));
      });
      this.#checks.add(check);
      check();
    });
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await new Promise((resolve) => child.once("exit", resolve));
}

/** Rules of the run before are no part of this one. */
function removeRules(checkout: string, folder: string): void {
  execFileSync(join(checkout, "bin/kube-proxy"), ["--cleanup"], {
    stdio: "ignore",
    env: { ...process.env, XTABLES_LOCKFILE: join(folder, "xtables.lock") },
  });
}

async function startOnce(checkout: string, folder: string, settleSeconds: number): Promise<StartFigures> {
  const args = [`--config=${join(folder, "config.json")}`, "--hostname-override=node-a", "-v=2"];
  const startMs = performance.now();
  const child = spawn(join(checkout, "bin/kube-proxy"), args, { stdio: ["ignore", "pipe", "pipe"] });
  const pid = child.pid ?? 0;
  const output = new Output(child);
  try {
    await output.has(LISTED);
    const listedMs = performance.now() - startMs;
    await output.has(SYNCED);
    const syncedMs = performance.now() - startMs;
    const synced = figuresOf(pid);
    if (settleSeconds > 0) await sleep(settleSeconds * 1000);
    const settled = figuresOf(pid);
    return {
      listedMs,
      syncedMs,
      cpuMs: synced.cpuMs + synced.childrenCpuMs,
      peakMb: synced.peakMb,
      settledMb: settled.rssMb,
      settledPrivateMb: privateMb(pid),
    };
  } finally {
    signalChild(child, "SIGKILL");
    await ended(child);
  }
}

function privateMb(pid: number): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const kilobytes = ["Private_Clean", "Private_Dirty"].map((field) =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(text)?.[1]),
  );
  return kilobytes.reduce((sum, value) => sum + value, 0) / 1024;
}

async function floorOnce(url: string, folder: string): Promise<FloorFigures> {
  const startMs = performance.now();
  const child = spawn(process.execPath, [FLOOR, url, join(folder, "ca.crt")], { stdio: ["ignore", "pipe", "pipe"] });
  const output = new Output(child);
  try {
    await output.has([/^parsed/m]);
    return { parsedMs: performance.now() - startMs, cpuMs: figuresOf(child.pid ?? 0).cpuMs };
  } finally {
    signalChild(child, "SIGKILL");
    await ended(child);
  }
}

/** The table must not be there. It is left behind. */
async function sendOnce({ services, endpointsEach, layout }: StartTask): Promise<number> {
  const args = [BATCHES, String(services), String(endpointsEach), ...(layout === undefined ? [] : [layout])];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  const output = new Output(child);
  try {
    await output.has([SENT]);
    return Number(SENT.exec(output.text)?.[1]);
  } finally {
    signalChild(child, "SIGKILL");
    await ended(child);
  }
}

async function run(task: StartTask, folder: string): Promise<StartResult> {
  const { services, endpointsEach, hasWatchList, mode, layout, checkouts, rounds, settleSeconds } = task;
  for (const checkout of checkouts) {
    if (!existsSync(join(checkout, "dist"))) throw new Error(`${checkout}/dist is missing: npm run build`);
  }
  const server = await startApiServer({ services, endpointsEach, hasWatchList });
  const { url, ca, listBytes } = server.ready;
  const folders = checkouts.map((_, index) => join(folder, String(index)));
  for (const [index, own] of folders.entries()) {
    mkdirSync(own);
    writeDaemonFiles(own, { url, ca, mode, layout: index === 0 ? layout : undefined });
  }
  const starts: StartFigures[][] = checkouts.map(() => []);
  const floor: FloorFigures[] = [];
  try {
    // The first round brings files into memory and is not counted.
    for (let round = 0; round <= rounds; round++) {
      const isCounted = round > 0;
      for (const [index, checkout] of checkouts.entries()) {
        const own = folders[index] ?? folder;
        removeRules(checkout, own);
        // The kernel frees what was removed by and by, in threads of its own.
        await sleep(REST_MS);
        const figures = await startOnce(checkout, own, isCounted ? settleSeconds : 0);
        if (isCounted) starts[index]?.push(figures);
      }
      const figures = await floorOnce(url, join(folder, "0"));
      if (!isCounted) continue;
      if (mode === "nftables") removeRules(OWN, join(folder, "0"));
      floor.push({ ...figures, ...(mode === "nftables" && { sentMs: await sendOnce(task) }) });
    }
    return { task, listBytes, starts, floor };
  } finally {
    server.stop();
  }
}

const folder = mkdtempSync(join(tmpdir(), "kpts-bench-"));
try {
  writeSync(1, `${JSON.stringify(await run(JSON.parse(process.argv[2] ?? "{}"), folder))}\n`);
} finally {
  rmSync(folder, { recursive: true });
}
