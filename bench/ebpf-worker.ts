/**
 * One subject in a namespace and a cgroup of its own. Argument: an EbpfTask as JSON. Writes its figures as one line of JSON; for
 * `connect` a line when the cluster is in the kernel, and then answers ways.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { NO_PACKET_PATH } from "../src/dataplane/ebpf/testing/no-packet-path.ts";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { benchService, makeReachable } from "./cluster.ts";
import { answerWays, startLoop } from "./connect-arms.ts";
import {
  CHANGE_KINDS,
  type ChangeFigures,
  type ChangeKind,
  type ChangesFigures,
  type ChurnFigures,
  type EbpfTask,
  type MapsFigures,
} from "./ebpf-figures.ts";
import { EbpfSubject } from "./ebpf-subject.ts";
import { settledMemory } from "./memory.ts";
import { benchBackend, NftSubject } from "./nftables-subject.ts";
import type { ConnectFigures, ReachFigures } from "./socket-loop.ts";
import { quantile } from "./table.ts";

const ENDPOINTS = 3;
const SERVER_PORT = 8080;
/** Changes of which it is measured when they are reached. */
const REACHED = 300;
/** A process that tries all the time does so undisturbed. */
const SETTLED_MS = 3;
const SCATTER = 7919;
const CHURNING_SERVICES = 20;
/** That warm up. */
const UNTIMED_CHANGES = 200;
const CHANGES_PER_MS = 1;
const MB = 2 ** 20;

async function ebpfOverFlat(services: number, cgroup: string): Promise<EbpfSubject> {
  const ruleset = openNetlinkRuleset();
  const flat = benchBackend(ruleset.open({ family: "ip", table: TABLE }), "Flat");
  const subject = new EbpfSubject(ENDPOINTS, flat, cgroup);
  subject.load(services);
  await subject.fullSync();
  return subject;
}

/** Memory of the kernel's for maps of this process. */
function mapBytes(): number {
  let bytes = 0;
  for (const fd of readdirSync("/proc/self/fdinfo")) {
    try {
      const text = readFileSync(join("/proc/self/fdinfo", fd), "utf8");
      if (text.includes("map_id")) bytes += Number(/^memlock:\s+(\d+)/m.exec(text)?.[1] ?? 0);
    } catch {
      // It was of reading the folder.
    }
  }
  return bytes;
}

async function measureMaps({ services, changes, cgroup }: Extract<EbpfTask, { what: "maps" }>): Promise<MapsFigures> {
  const subject = new EbpfSubject(ENDPOINTS, NO_PACKET_PATH, cgroup);
  subject.load(services);
  const { heapMb: modelMb } = await settledMemory();
  const before = process.cpuUsage();
  await subject.fullSync();
  const { user, system } = process.cpuUsage(before);
  const { heapMb } = await settledMemory();
  const [effects, events, mapWork]: [number[], number[], number[]] = [[], [], []];
  const measure = async (samples: number[], change: () => void): Promise<void> => {
    await turn();
    EbpfSubject.mapWorkMs = 0;
    const startMs = performance.now();
    change();
    await subject.syncChanges();
    samples.push(subject.mapsDoneMs - startMs);
    mapWork.push(EbpfSubject.mapWorkMs * 1000);
  };
  for (let n = 0; n < changes; n += 1) {
    const index = (n * SCATTER) % services;
    await measure(effects, () => subject.replaceEndpoint(index));
    const onLine = subject.watchLine(index);
    const before = n === 0 ? subject.leads(index) : undefined;
    await measure(events, onLine);
    if (n === 0 && (before === undefined || subject.leads(index) === before))
      throw new Error("the maps have not changed");
  }
  const reached = await measureReached(subject, services);
  const kernelMb = mapBytes() / MB;
  await subject.close();
  return {
    services,
    fillCpuMs: (user + system) / 1000,
    mapWorkP50Us: quantile(mapWork, 0.5),
    mapWorkP99Us: quantile(mapWork, 0.99),
    effectP50Ms: quantile(effects, 0.5),
    effectP99Ms: quantile(effects, 0.99),
    eventP50Ms: quantile(events, 0.5),
    eventP99Ms: quantile(events, 0.99),
    reachedP50Ms: quantile(reached.ms, 0.5),
    reachedP99Ms: quantile(reached.ms, 0.99),
    reachedCount: reached.ms.length,
    attemptUs: quantile(reached.periodsUs, 0.5),
    heapMb: heapMb - modelMb,
    kernelMb,
  };
}

/** From the line of a watch to the first connection that reaches the new endpoint. Until then each is refused. */
async function measureReached(subject: EbpfSubject, services: number) {
  await startLoop("serve", String(SERVER_PORT));
  const client = await startLoop("reach");
  const [ms, periodsUs]: [number[], number[]] = [[], []];
  for (let n = 0; n < REACHED; n += 1) {
    const index = (n * SCATTER) % services;
    const onLine = subject.replaceDeadEndpoint(index);
    await subject.syncChanges();
    client.tell([benchService(index).clusterIP, 80]);
    await client.next();
    await sleep(SETTLED_MS);
    const lineMs = Number(process.hrtime.bigint()) / 1e6;
    onLine();
    await subject.syncChanges();
    const { connectedMs, periodUs }: ReachFigures = JSON.parse(await client.next());
    ms.push(connectedMs - lineMs);
    periodsUs.push(periodUs);
  }
  return { ms, periodsUs };
}

async function measureConnections({ mode, services, cgroup }: Extract<EbpfTask, { what: "connect" }>): Promise<void> {
  if (mode === "ebpf") await ebpfOverFlat(services, cgroup);
  else {
    const subject = new NftSubject(ENDPOINTS, "Compatible");
    subject.load(services);
    await subject.fullSync(false);
  }
  await answerWays(services, ENDPOINTS);
}

async function measureChanges(task: Extract<EbpfTask, { what: "changes" }>): Promise<ChangesFigures> {
  const { mode, services, changes, cgroup } = task;
  const subject = mode === "ebpf" ? await ebpfOverFlat(services, cgroup) : new NftSubject(ENDPOINTS, "Flat");
  if (subject instanceof NftSubject) {
    subject.load(services);
    await subject.fullSync(false);
  }
  const measured = async (change: () => void): Promise<readonly [ms: number, cpuMs: number]> => {
    await turn();
    const before = process.cpuUsage();
    const startMs = performance.now();
    change();
    await subject.syncChanges();
    const tookMs = performance.now() - startMs;
    const { user, system } = process.cpuUsage(before);
    return [tookMs, (user + system) / 1000];
  };
  const taken: Record<ChangeKind, (readonly [ms: number, cpuMs: number])[]> = {
    "an endpoint replaced": [],
    "a service removed": [],
    "a service added": [],
  };
  for (let n = -UNTIMED_CHANGES; n < changes; n += 1) {
    const index = (Math.abs(n) * SCATTER) % services;
    for (const [kind, change] of [
      ["an endpoint replaced", () => subject.replaceEndpoint(index)],
      ["a service removed", () => subject.setService(index, "delete")],
      ["a service added", () => subject.setService(index, "add")],
    ] as const) {
      const one = await measured(change);
      if (n >= 0) taken[kind].push(one);
    }
  }
  const figures = CHANGE_KINDS.map((kind): [ChangeKind, ChangeFigures] => {
    const samples = taken[kind].map(([ms]) => ms);
    const cpuMs = taken[kind].reduce((sum, [, ms]) => sum + ms, 0) / changes;
    const [p50Ms, p99Ms, worstMs] = [quantile(samples, 0.5), quantile(samples, 0.99), Math.max(...samples)];
    return [kind, { p50Ms, p99Ms, worstMs, cpuMs }];
  });
  return Object.fromEntries(figures) as ChangesFigures; // every kind once
}

async function measureChurn({ connections, cgroup }: Extract<EbpfTask, { what: "churn" }>): Promise<ChurnFigures> {
  const subject = await ebpfOverFlat(CHURNING_SERVICES, cgroup);
  await startLoop("serve", String(SERVER_PORT));
  const client = await startLoop("connect");
  const targets = Array.from({ length: CHURNING_SERVICES }, (_, n) => [benchService(n).clusterIP, 80] as const);
  const startMs = performance.now();
  let isOver = false;
  const connecting = client.ask<ConnectFigures>({ targets, count: connections }).finally(() => {
    isOver = true;
  });
  let [changes, linkUpdates] = [0, 0];
  while (!isOver) {
    const due = (performance.now() - startMs) * CHANGES_PER_MS;
    for (; changes < due; changes += 1) subject.replaceEndpoint(changes % CHURNING_SERVICES);
    await subject.syncChanges();
    linkUpdates = subject.updateLinks();
    await turn();
  }
  const { failures } = await connecting;
  const seconds = (performance.now() - startMs) / 1000;
  return { connections, failures, changes, linkUpdates, seconds };
}

const task: EbpfTask = JSON.parse(process.argv[2] ?? "{}");
writeFileSync(join(task.cgroup, "cgroup.procs"), `${process.pid}`);
makeReachable();
if (task.what === "connect") await measureConnections(task);
else {
  const figures =
    task.what === "maps"
      ? await measureMaps(task)
      : task.what === "changes"
        ? await measureChanges(task)
        : await measureChurn(task);
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}
process.exit();
