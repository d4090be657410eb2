/**
 * A whole kube-proxy at the tests' API server: its first sync, and how long after a new Service is known a connection
 * through its cluster IP succeeds, with a client that tries all the time.
 */
import { execFileSync } from "node:child_process";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type DaemonTask, hasEnded, startApiServer, startDaemon } from "./api-cluster.ts";
import { apiService, apiSlice } from "./api-objects.ts";
import { benchService } from "./cluster.ts";
import type { ClusterSize } from "./driver.ts";
import { figuresOf } from "./memory.ts";
import { withNamespace } from "./namespace.ts";
import { type Figures, Notes, spread } from "./table.ts";
import { answerLines, type LineProcess, startLines, startWorker } from "./workers.ts";

const NODE_IP = "10.200.0.2";
const SERVER_IP = "10.200.0.3";
const SERVER_PORT = 8080;
/** Between two changes: longer than kube-proxy's own pause, and not a multiple of any period. */
const PAUSE_MS = 1137;
/** A connection is started this often, or every hundredth of the time spent trying. */
const EVERY_MS = 2;
const METRICS = "http://127.0.0.1:10249/metrics";
/** Rest that ends a measurement, and the processor time in it that still counts as rest: kube-proxy syncs a second after a change. */
const REST_MS = 3_000;
const REST_CPU_MS = 60;

export interface ProgramTask extends ClusterSize, DaemonTask {
  /** For the first sync, and for each connection. */
  readonly limitMs: number;
}

/** This program's promises: p50 from the API server's answer to the first connection (issue 4); its own memory in a small cluster. */
const CONNECTION_MS: Readonly<Record<string, number>> = { iptables: 200, nftables: 50 };
const PRIVATE_MB = 20;
const SMALL = 15;

/** What a program has used since its start, tools included; the duration of all syncs comes from its own metrics. */
interface Used {
  readonly cpuMs: number;
  readonly workMs: number;
}

/** And its memory at that time, in megabytes; "own" is what no other process shares. */
interface Memory {
  readonly rssMb: number;
  readonly peakMb: number;
  readonly privateMb: number;
}

/** The first output of {@link runProgram}. Processor time includes that of tools. */
interface Started {
  readonly firstSyncMs: number;
  readonly startCpuMs: number;
  readonly failure?: string;
}

/** A request to {@link runProgram}: for what was used until the program came to rest, with its memory this much later; or for a Service. */
type Asked = { readonly settleSeconds: number } | { readonly index: number };

/** All processes share this clock. */
const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** @param trials Services to add, one after the other. @param settleSeconds rest before its memory is read. Rejects with a description. */
export function measureProgram(task: ProgramTask, trials: number, settleSeconds: number): Promise<Figures> {
  return withNamespace((node) =>
    withNamespace(async (server) => {
      connectNode(node.name, server.name);
      const script = `require("node:net").createServer((socket) => socket.end()).listen(${SERVER_PORT}, "0.0.0.0")`;
      const client = startWorker("against", { isClient: true }, node);
      const api = startWorker("against", task, node);
      const children = [startLines([process.execPath, "-e", script], server.name), client, api];
      try {
        const { failure, firstSyncMs, startCpuMs }: Started = JSON.parse(await api.next());
        if (failure !== undefined) throw new Error(failure);
        await api.next();
        await client.next();
        const before = await api.ask<Used>({ settleSeconds: 0 });
        const samples: number[] = [];
        for (let index = task.services; index < task.services + trials; index += 1) {
          samples.push(await connectionTo(index, client, api, task.limitMs));
        }
        const after = await api.ask<Used & Memory>({ settleSeconds });
        const notes = new Notes();
        notes.add("start to first sync, ms", firstSyncMs);
        notes.add("  processor time until then, tools included, ms", startCpuMs);
        const { p50, p99 } = spread(samples);
        notes.add("a Service more: its first connection, ms, p50", p50, CONNECTION_MS[task.mode]);
        notes.add("  p99", p99);
        notes.add("  work of its syncs, ms", (after.workMs - before.workMs) / trials);
        notes.add("  processor time, ms", (after.cpuMs - before.cpuMs) / trials);
        notes.add("resident at rest, MB", after.rssMb);
        notes.add("resident of its own alone, MB", after.privateMb, task.services > SMALL ? undefined : PRIVATE_MB);
        notes.add("  at its peak", after.peakMb);
        return notes.figures;
      } finally {
        // It stops its daemon before exiting.
        await api.finish();
        for (const child of children) child.end();
      }
    }),
  );
}

/** @returns milliseconds from just before the Service is known to the first connection. */
async function connectionTo(index: number, client: LineProcess, api: LineProcess, limitMs: number): Promise<number> {
  const connected = client.ask<number>({ host: benchService(index).clusterIP });
  await sleep(PAUSE_MS);
  const startMs = await api.ask<number>({ index });
  const endMs = await Promise.race([connected, sleep(limitMs, undefined, { ref: false })]);
  if (endMs === undefined) throw new Error(`no connection through a new Service in ${limitMs / 1000} s`);
  return endMs - startMs;
}

/** A node, and a server behind its only link. */
function connectNode(node: string, server: string): void {
  const batch = (name: string, lines: readonly string[]): void =>
    void execFileSync("ip", ["-n", name, "-batch", "-"], { input: lines.join("\n") });
  batch(node, [
    `link add eth0 type veth peer name eth0 netns ${server}`,
    "link set eth0 up",
    `addr add ${NODE_IP}/24 dev eth0`,
    `route add default via ${SERVER_IP}`,
  ]);
  batch(server, ["link set eth0 up", `addr add ${SERVER_IP}/24 dev eth0`]);
}

/** Tries until a connection to port 80 of each requested host succeeds, and reports when. */
export const answerConnections = (): Promise<void> =>
  answerLines(async ({ host }: { readonly host: string }): Promise<number> => {
    const attempts = new Set<Socket>();
    let connectedMs: number | undefined;
    const startMs = performance.now();
    while (connectedMs === undefined) {
      const socket = connect({ host, port: 80 });
      attempts.add(socket);
      socket.on("error", () => attempts.delete(socket));
      socket.on("connect", () => {
        connectedMs ??= monotonicMs();
      });
      await sleep(Math.max(EVERY_MS, (performance.now() - startMs) / 100));
    }
    for (const socket of attempts) socket.destroy();
    return connectedMs;
  });

/** The sum of a metric over its labels; undefined before there is one. Upstream added `ip_family` to the sync metrics in 1.34. */
async function metric(name: string): Promise<number | undefined> {
  const text = await fetch(METRICS).then(
    (answer) => answer.text(),
    () => "",
  );
  const values = text.matchAll(new RegExp(`^kubeproxy_${name}(?:\\{(?!ip_family="IPv6").*\\})? (\\S+)$`, "gm"));
  return Array.from(values, ([, value]) => Number(value)).reduce<number | undefined>(
    (sum, value) => (sum ?? 0) + value,
    undefined,
  );
}

/** An API server and a kube-proxy. First reports the first sync, then answers what it is {@link Asked}. */
export async function runProgram({ limitMs, ...task }: ProgramTask): Promise<undefined> {
  const server = await startApiServer(task, NODE_IP);
  const startMs = performance.now();
  const daemon = startDaemon(server, task);
  const cpuMs = (): number => {
    const figures = figuresOf(daemon.pid);
    return figures.cpuMs + figures.childrenCpuMs;
  };
  /** Why there was no first sync, in words. */
  const failure = (): string => {
    const { exitCode, signalCode } = daemon.child;
    const what = hasEnded(daemon)
      ? `ended with ${signalCode ?? `status ${exitCode}`} before its first sync`
      : `had no first sync in ${limitMs / 1000} s: ${METRICS} has no kubeproxy_sync_proxy_rules_last_timestamp_seconds of IPv4`;
    const last = daemon.log.trimEnd().split("\n").slice(-5).join("\n");
    return `${task.program} ${what}; ${last === "" ? "it has logged nothing" : `its last lines:\n${last}`}`;
  };
  const answer = async (asked: Asked) => {
    if ("index" in asked) {
      const { index } = asked;
      const slice = apiSlice(index, 1, 0, Date.now(), [SERVER_IP]);
      const nowMs = monotonicMs();
      server.put("services", apiService(index));
      server.put("endpointslices", slice);
      return nowMs;
    }
    for (let before = Number.NEGATIVE_INFINITY; cpuMs() - before > REST_CPU_MS; await sleep(REST_MS)) before = cpuMs();
    const workMs = ((await metric("sync_proxy_rules_duration_seconds_sum")) ?? Number.NaN) * 1000;
    const used: Used = { cpuMs: cpuMs(), workMs };
    await sleep(asked.settleSeconds * 1000);
    const { rssMb, peakMb, privateMb } = figuresOf(daemon.pid);
    return { ...used, rssMb, peakMb, privateMb };
  };
  try {
    let hasSynced = false;
    while (!hasSynced && !hasEnded(daemon) && performance.now() - startMs < limitMs) {
      await sleep(10);
      hasSynced = ((await metric("sync_proxy_rules_last_timestamp_seconds")) ?? 0) > 0;
    }
    const started: Started = {
      ...{ firstSyncMs: performance.now() - startMs, startCpuMs: hasSynced ? cpuMs() : 0 },
      ...(!hasSynced && { failure: failure() }),
    };
    process.stdout.write(`${JSON.stringify(started)}\n`);
    await answerLines(answer);
  } finally {
    await daemon.dispose();
    await server.close();
  }
}
