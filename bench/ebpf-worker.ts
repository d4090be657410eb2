/**
 * One subject in a namespace and a cgroup of its own. Argument: an EbpfTask as JSON. Writes its figures as one line of JSON; for
 * `connect` a line when the cluster is in the kernel, and then a ConnectRound for each line of standard input.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setImmediate as turn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { NO_PACKET_PATH } from "../src/dataplane/ebpf/testing/no-packet-path.ts";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { type LineProcess, startLines } from "./bench-processes.ts";
import { benchService, benchSlice } from "./cluster.ts";
import type { ChurnFigures, ConnectRound, EbpfTask, MapsFigures } from "./ebpf-figures.ts";
import { EbpfSubject } from "./ebpf-subject.ts";
import { settledMemory } from "./memory.ts";
import { benchBackend, NftSubject } from "./nftables-subject.ts";
import { makeReachable } from "./reachable.ts";
import type { ConnectFigures, ConnectTask } from "./socket-loop.ts";
import { quantile } from "./statistics.ts";

const SOCKET_LOOP = fileURLToPath(new URL("./socket-loop.ts", import.meta.url));
const ENDPOINTS = 3;
const SERVER_PORT = 8080;
/** Of one round each way. */
const CONNECTIONS = 3000;
/** In turns, so that both are as warm. */
const AT_A_STRETCH = 100;
const SCATTER = 7919;
const CHURNING_SERVICES = 20;
const CHANGES_PER_MS = 1;
const MB = 2 ** 20;

async function startLoop(...words: string[]): Promise<LineProcess> {
  const child = startLines(process.execPath, [SOCKET_LOOP, ...words]);
  await child.next();
  return child;
}

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
    heapMb: heapMb - modelMb,
    kernelMb,
  };
}

async function measureConnections({ mode, services, cgroup }: Extract<EbpfTask, { what: "connect" }>): Promise<void> {
  if (mode === "ebpf") await ebpfOverFlat(services, cgroup);
  else {
    const subject = new NftSubject(ENDPOINTS, "Compatible");
    subject.load(services);
    await subject.fullSync(false);
  }
  await startLoop("serve", String(SERVER_PORT));
  const client = await startLoop("connect");
  const numbers = Array.from({ length: AT_A_STRETCH }, (_, n) => (n * SCATTER) % services);
  const direct: ConnectTask = {
    count: AT_A_STRETCH,
    targets: numbers.map((n) => [benchSlice(n, ENDPOINTS).endpoints[n % ENDPOINTS]?.address ?? "", SERVER_PORT]),
  };
  const service: ConnectTask = { count: AT_A_STRETCH, targets: numbers.map((n) => [benchService(n).clusterIP, 80]) };
  const connect = async (task: ConnectTask): Promise<number> => {
    const { p50Us, failures } = await client.ask<ConnectFigures>(task);
    if (failures > 0) throw new Error(`${mode}: ${failures} of ${task.count} connections failed`);
    return p50Us;
  };
  const measure = async (): Promise<ConnectRound> => {
    const taken: { direct: number[]; service: number[] } = { direct: [], service: [] };
    for (let count = 0; count < CONNECTIONS; count += AT_A_STRETCH) {
      taken.direct.push(await connect(direct));
      taken.service.push(await connect(service));
    }
    return { directUs: quantile(taken.direct, 0.5), serviceUs: quantile(taken.service, 0.5) };
  };
  await measure();
  process.stdout.write("ready\n");
  for await (const _line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await measure())}\n`);
  }
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
  const figures = task.what === "maps" ? await measureMaps(task) : await measureChurn(task);
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}
process.exit();
