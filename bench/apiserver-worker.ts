/**
 * One mode, inside of a fresh namespace. Argument: an ApiServerTask as JSON. Standard output: ApiServerFigures as one line
 * of JSON.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { signalChild } from "../src/kernel/child-process.ts";
import { type ApiServerChild, startApiServer } from "./api-server-child.ts";
import type { SourceReport, SourceTask } from "./api-source-process.ts";
import type { ApiServerFigures, ApiServerTask, StreamFigures } from "./apiserver.ts";
import { writeDaemonFiles } from "./daemon-files.ts";
import { GcTrace } from "./gc-trace.ts";
import { figuresOf } from "./memory.ts";
import { engineOptions, memoryEnvironment } from "./run-worker.ts";

const HERE = new URL(".", import.meta.url);
const path = (relative: string): string => fileURLToPath(new URL(relative, HERE));
const LIMIT_MS = 300_000;

/** Waits until the condition holds, asking often: what is waited for is timed. */
async function until(what: string, condition: () => boolean): Promise<void> {
  const end = performance.now() + LIMIT_MS;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`waited ${LIMIT_MS / 1000} s for ${what}`);
    await sleep(5);
  }
}

interface Watched {
  readonly child: ChildProcess;
  readonly trace: GcTrace;
}

/** Measures what a stream of events costs a process. */
async function measure(
  { child, trace }: Watched,
  server: ApiServerChild,
  task: ApiServerTask,
): Promise<StreamFigures & { readonly bytesBefore: number }> {
  const pid = child.pid ?? 0;
  const before = { ...figuresOf(pid), allocatedMb: trace.allocatedMb, pauseMs: trace.pauseMs };
  const { events, bytes, bytesBefore, seconds } = await server.stream({
    eventsPerSecond: task.eventsPerSecond,
    seconds: task.eventSeconds,
  });
  // What is still on its way.
  await sleep(1_000);
  const after = figuresOf(pid);
  const perEvent = (beforeMs: number, afterMs: number): number => ((afterMs - beforeMs) * 1000) / events;
  return {
    events,
    bytesBefore,
    bytesPerEvent: bytes / events,
    cpuUsPerEvent: perEvent(before.cpuMs, after.cpuMs),
    kernelCpuUsPerEvent: perEvent(before.kernelCpuMs, after.kernelCpuMs),
    childrenCpuUsPerEvent: perEvent(before.childrenCpuMs, after.childrenCpuMs),
    allocatedBytesPerEvent: ((trace.allocatedMb - before.allocatedMb) * 2 ** 20) / events,
    pauseShare: (trace.pauseMs - before.pauseMs) / (seconds * 1000),
    rssMb: after.rssMb,
  };
}

/** The built program, with the options and the environment that bin/kube-proxy gives it. */
function startDaemon(folder: string, onLog: (text: string) => void): Watched {
  const main = path("../dist/bundle/main.js");
  if (!existsSync(main)) throw new Error("dist/ is missing: run npm run build");
  const args = [`--config=${join(folder, "config.json")}`, "--hostname-override=node-a", "-v=2"];
  const child = spawn(process.execPath, [...engineOptions(), "--trace-gc", main, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...memoryEnvironment() },
  });
  child.stderr.setEncoding("utf8").on("data", onLog);
  return { child, trace: traceOf(child) };
}

function traceOf(child: ChildProcess): GcTrace {
  const trace = new GcTrace();
  child.stdout?.setEncoding("utf8").on("data", (text: string) => trace.push(text));
  return trace;
}

async function measureSource(server: ApiServerChild, task: ApiServerTask): Promise<StreamFigures> {
  const { url, ca } = server.ready;
  const argument: SourceTask = { url, ca, takesProtobuf: task.format === "protobuf" };
  const child = fork(path("api-source-process.ts"), [JSON.stringify(argument)], {
    stdio: ["ignore", "pipe", "inherit", "ipc"],
    env: { ...process.env, ...memoryEnvironment() },
    execArgv: [...engineOptions(), "--trace-gc"],
  });
  const trace = traceOf(child);
  await new Promise<SourceReport>((resolve) => child.once("message", (message) => resolve(message as SourceReport)));
  const figures = await measure({ child, trace }, server, task);
  child.send("events");
  const report = await new Promise<SourceReport>((resolve) =>
    child.once("message", (message) => resolve(message as SourceReport)),
  );
  child.disconnect();
  const delivered = "events" in report ? report.events : 0;
  if (delivered < figures.events) throw new Error(`the source delivered ${delivered} of ${figures.events} events`);
  return figures;
}

async function run(task: ApiServerTask, folder: string): Promise<ApiServerFigures> {
  const { services, endpointsEach, hasWatchList, mode, format } = task;
  const server = await startApiServer({ services, endpointsEach, hasWatchList });
  const { url, ca } = server.ready;
  const contentType = format === "json" ? "application/json" : "application/vnd.kubernetes.protobuf";
  writeDaemonFiles(folder, { url, ca, mode, contentType });
  let log = "";
  const startMs = performance.now();
  const daemon = startDaemon(folder, (text) => {
    log += text;
  });
  const pid = daemon.child.pid ?? 0;
  try {
    const check = (): void => {
      if (daemon.child.exitCode !== null) throw new Error(`the daemon ended:\n${log}`);
    };
    await until("the lists", () => {
      check();
      return /synced" controller="service config"/.test(log) && /synced" controller="endpoint slice config"/.test(log);
    });
    const listedMs = performance.now() - startMs;
    await until("the rules", () => {
      check();
      return (
        /"SyncProxyRules complete" ipFamily="IPv4"/.test(log) && /"SyncProxyRules complete" ipFamily="IPv6"/.test(log)
      );
    });
    const syncedMs = performance.now() - startMs;
    const synced = figuresOf(pid);
    await sleep(task.settleSeconds * 1000);
    const settled = figuresOf(pid);
    const { bytesBefore: listBytes, ...stream } = await measure(daemon, server, task);
    await sleep(task.settleSeconds * 1000);
    const afterStream = figuresOf(pid);
    signalChild(daemon.child, "SIGKILL");
    const source = await measureSource(server, task);
    return {
      mode,
      format,
      services,
      endpointsEach,
      listBytes,
      listedMs,
      syncedMs,
      syncedCpuMs: synced.cpuMs + synced.childrenCpuMs,
      peakMb: synced.peakMb,
      syncedMb: synced.rssMb,
      settledMb: settled.rssMb,
      fileMb: settled.fileMb,
      stream,
      afterStreamMb: afterStream.rssMb,
      source,
    };
  } finally {
    signalChild(daemon.child, "SIGKILL");
    server.stop();
  }
}

const folder = mkdtempSync(join(tmpdir(), "kpts-bench-"));
try {
  const figures = await run(JSON.parse(process.argv[2] ?? "{}"), folder);
  writeSync(1, `${JSON.stringify(figures)}\n`);
} finally {
  rmSync(folder, { recursive: true });
}
