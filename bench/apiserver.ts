/**
 * `npm run bench -- apiserver`: the cost of following an API server, with the whole program as installed at the tests'
 * API server, and with the source alone. See docs/performance.md.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { GCProfiler } from "node:v8";
import { createApiSource } from "../src/agent/cluster/apiserver/api-source.ts";
import { createApiClient } from "../src/agent/cluster/apiserver/connection/api-client.ts";
import { UNSAID } from "../src/agent/cluster/apiserver/connection/client-config.ts";
import { systemClock } from "../src/async/clock.ts";
import { silentLogger } from "../src/logging/logger.ts";
import type { TestApiServer } from "../test/apiserver/test-api-server.ts";
import { hasEnded, startApiServer, startDaemon } from "./api-cluster.ts";
import { apiSlice } from "./api-objects.ts";
import { NODE_ADDRESS } from "./cluster.ts";
import type { Bench, ClusterSize } from "./driver.ts";
import { figuresOf, type ProcessFigures } from "./memory.ts";
import { type Figures, Notes } from "./table.ts";
import { answerLines, startWorker } from "./workers.ts";

const MODES = ["nftables", "iptables"] as const;
const FORMATS = { protobuf: "application/vnd.kubernetes.protobuf", json: "application/json" } as const;
const FORMAT_NAMES = ["protobuf", "json"] as const;
const LIMIT_MS = 300_000;
const TICK_MS = 10;
/** Issue 3. */
const WANTED_MB = 200;
const WANTED_US = 100;
/** Events are still on their way when the last one has been made. */
const DELIVERED_MS = 1_000;

interface ProgramTask extends ClusterSize {
  readonly mode: (typeof MODES)[number];
  readonly format: (typeof FORMAT_NAMES)[number];
  /** Whether lists can be streamed; otherwise they are read in pages. */
  readonly hasWatchList: boolean;
  readonly eventsPerSecond: number;
  readonly eventSeconds: number;
  /** Idle time before the settled size is read. */
  readonly settleSeconds: number;
}

/** The API server as a source, with nothing behind it. */
interface SourceTask {
  readonly url: string;
  readonly ca: string;
  readonly takesProtobuf: boolean;
}

/** Totals of the source's process so far. */
interface SourceReport {
  readonly events: number;
  readonly allocatedBytes: number;
  /** Time stopped for garbage collection. */
  readonly pauseMs: number;
}

export const bench: Bench = {
  name: "apiserver",
  about: `Measures the whole program at an API server over TLS, in throw-away network namespaces: the initial list until the rules are
in the kernel, memory, and a stream of endpoint changes. Needs root and npm run build.`,
  options: {
    quick: { help: "1000 services, 5 s of events" },
    modes: { value: "LIST", initial: "nftables", help: MODES.join(",") },
    formats: { value: "LIST", initial: FORMAT_NAMES.join(","), help: "what the API server is asked to answer in" },
    services: { value: "N", initial: "10000", quick: "1000", help: "of the cluster" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    rate: { value: "N", initial: "1000", help: "endpoint changes a second" },
    seconds: { value: "N", initial: "25", quick: "5", help: "of them" },
    settle: { value: "SECONDS", initial: "20", quick: "1", help: "rest before the memory is read" },
    pages: { help: "lists in pages instead of streamed" },
  },
  tasks(given) {
    const all = given.someOf("modes", MODES).flatMap((mode) =>
      given.someOf("formats", FORMAT_NAMES).map((format) => {
        const task: ProgramTask = {
          ...{ mode, format, services: given.whole("services"), endpointsEach: given.whole("endpoints") },
          ...{ eventsPerSecond: given.whole("rate"), eventSeconds: given.whole("seconds") },
          ...{ hasWatchList: !given.isOn("pages"), settleSeconds: given.whole("settle") },
        };
        return [`${mode}, ${format}, ${task.services} × ${task.endpointsEach}`, [task]] as const;
      }),
    );
    return Object.fromEntries(all);
  },
  worker: (task: ProgramTask | SourceTask) => ("url" in task ? followAlone(task) : measureProgram(task)),
};

/** In this process's network namespace. */
async function measureProgram(task: ProgramTask): Promise<Figures> {
  const notes = new Notes();
  const server = await startApiServer(task, NODE_ADDRESS);
  server.switches.hasWatchList = task.hasWatchList;
  const makeEvents = eventsOf(server, task);
  try {
    await measureDaemon(server, task, makeEvents, notes);
    await measureSource(server, task, makeEvents, notes);
    return notes.figures;
  } finally {
    await server.close();
  }
}

async function measureDaemon(
  server: TestApiServer,
  { mode, format, settleSeconds }: ProgramTask,
  makeEvents: () => Promise<Made>,
  notes: Notes,
): Promise<void> {
  const startMs = performance.now();
  const daemon = startDaemon(server, { mode, contentType: FORMATS[format] });
  const said = async (...patterns: readonly RegExp[]): Promise<number> => {
    while (!patterns.every((pattern) => pattern.test(daemon.log))) {
      if (hasEnded(daemon) || performance.now() - startMs > LIMIT_MS) throw new Error(`no ${patterns}:\n${daemon.log}`);
      await sleep(5);
    }
    return performance.now() - startMs;
  };
  try {
    const listedMs = await said(/synced" controller="service config"/, /synced" controller="endpoint slice config"/);
    const families = ["IPv4", "IPv6"].map((family) => new RegExp(`"SyncProxyRules complete" ipFamily="${family}"`));
    notes.add("start of the process to everything listed", listedMs);
    notes.add("start of the process to rules in the kernel", await said(...families));
    const synced = figuresOf(daemon.pid);
    notes.add("  processor time until then, tools included", synced.cpuMs + synced.childrenCpuMs);
    notes.add("sent for the initial lists, kB", server.sentBytes / 1000);
    await sleep(settleSeconds * 1000);
    const settled = figuresOf(daemon.pid);
    notes.add("resident MB: peak until then", synced.peakMb);
    notes.add("  MB resident once settled", settled.rssMb, WANTED_MB);
    notes.add("  of that pages of files, which processes share", settled.fileMb);
    await measureStream(daemon.pid, makeEvents, "the whole program", notes);
    await sleep(settleSeconds * 1000);
    notes.add("  MB after the events, settled", figuresOf(daemon.pid).rssMb, WANTED_MB);
  } finally {
    await daemon.dispose();
  }
}

interface Made {
  readonly events: number;
  readonly bytes: number;
  readonly ms: number;
}

/** @returns a function that changes endpoints at a steady rate. */
function eventsOf(server: TestApiServer, task: ProgramTask): () => Promise<Made> {
  const { services, endpointsEach, eventsPerSecond, eventSeconds } = task;
  const all = eventsPerSecond * eventSeconds;
  let [generation, next] = [0, 0];
  return async () => {
    const startMs = performance.now();
    const bytesBefore = server.sentBytes;
    for (let events = 0; events < all; await sleep(TICK_MS)) {
      const due = Math.min(all, ((performance.now() - startMs) / 1000) * eventsPerSecond);
      for (; events < due; events += 1) {
        if (next % services === 0) generation += 1;
        // Neighbours are far apart, as in a real cluster.
        const index = (next++ * 7919) % services;
        server.store.put("endpointslices", apiSlice(index, endpointsEach, generation, Date.now()));
      }
    }
    server.store.compact();
    return { events: all, bytes: server.sentBytes - bytesBefore, ms: performance.now() - startMs };
  };
}

/** The cost of a stream of events to a process. */
async function measureStream(
  pid: number,
  makeEvents: () => Promise<Made>,
  what: string,
  notes: Notes,
  wantedUs?: number,
): Promise<Made> {
  const before = figuresOf(pid);
  const made = await makeEvents();
  await sleep(DELIVERED_MS);
  const after = figuresOf(pid);
  const us = (of: keyof ProcessFigures): number => ((after[of] - before[of]) * 1000) / made.events;
  notes.add(`${what}: events`, made.events);
  notes.add(`${what}: sent for a changed endpoint, kB`, made.bytes / made.events / 1000);
  notes.add(`${what}: processor time of all threads for it, µs`, us("cpuMs"), wantedUs);
  notes.add(`${what}: of that in the kernel`, us("kernelCpuMs"));
  notes.add(`${what}: of tools, beside it`, us("childrenCpuMs"));
  return made;
}

/** Only the source: requests, decoding, the minimal set of events. */
async function measureSource(
  { url, authority }: TestApiServer,
  { format }: ProgramTask,
  makeEvents: () => Promise<Made>,
  notes: Notes,
): Promise<void> {
  const task: SourceTask = { url, ca: authority.certificate, takesProtobuf: format === "protobuf" };
  const child = startWorker("apiserver", task);
  try {
    await child.next();
    const before = await child.ask<SourceReport>({});
    const { events, ms } = await measureStream(child.pid, makeEvents, "the source alone", notes, WANTED_US);
    const after = await child.ask<SourceReport>({});
    const delivered = after.events - before.events;
    if (delivered < events) throw new Error(`the source delivered ${delivered} of ${events} events`);
    notes.add("  allocated for it, kB", (after.allocatedBytes - before.allocatedBytes) / events / 1000);
    notes.add("  standing still to collect garbage, %", (100 * (after.pauseMs - before.pauseMs)) / ms);
  } finally {
    child.end();
  }
}

async function followAlone({ url, ca, takesProtobuf }: SourceTask): Promise<undefined> {
  const common = { clock: systemClock, log: silentLogger };
  const config = { ...UNSAID, server: new URL(url), ca: { kind: "data", text: ca } } as const;
  const product = "kube-proxy-ts/1.2.3 (abc)";
  const client = createApiClient({ ...common, config, qps: -1, burst: 0, version: "v1.37.0", product });
  let [events, synced, allocatedBytes, pauseMs] = [0, 0, 0, 0];
  const ready = Promise.withResolvers<void>();
  const sink = {
    onEvent() {
      events += 1;
    },
    onSynced() {
      synced += 1;
      if (synced === 4) ready.resolve();
    },
  };
  const transport = client.newTransport();
  const options = { ...common, transport, takesProtobuf, nodeName: "node-a", resyncPeriodMs: 0 };
  void createApiSource(options).run(sink, new AbortController().signal);
  await ready.promise;
  let profiler = new GCProfiler();
  profiler.start();
  await answerLines((): SourceReport => {
    let lastBytes: number | undefined;
    for (const { beforeGC, afterGC, cost } of profiler.stop()?.statistics ?? []) {
      const bytes = beforeGC.heapStatistics.usedHeapSize;
      allocatedBytes += Math.max(0, bytes - (lastBytes ?? bytes));
      lastBytes = afterGC.heapStatistics.usedHeapSize;
      pauseMs += cost / 1000;
    }
    profiler = new GCProfiler();
    profiler.start();
    return { events, allocatedBytes, pauseMs };
  });
}
