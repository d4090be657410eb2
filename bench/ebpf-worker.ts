/** One measurement of `npm run bench -- ebpf`, in this process's network namespace and its own cgroup. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import type { Bpf, BpfLink, BpfProgram } from "../src/kernel/bpf/bpf.ts";
import { kernelBpf } from "../src/kernel/bpf/kernel-bpf.ts";
import { projectEndpointSlice } from "../src/model/projection/endpoint-slice.ts";
import { SocketMaps } from "../src/modes/ebpf/socket-maps.ts";
import { NO_PACKET_PATH } from "../src/modes/ebpf/testing/no-packet-path.ts";
import { apiSlice } from "./api-objects.ts";
import { nftBackend } from "./backends.ts";
import { benchService, benchSlice, makeReachable } from "./cluster.ts";
import { answerWays, SERVER_PORT, startLoop, targetsOf } from "./connections.ts";
import type { ChurnFigures, EbpfTask } from "./ebpf.ts";
import { EbpfSubject } from "./ebpf-subject.ts";
import { cpuMsOf, settledMemory } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import type { LoopFigures, ReachFigures } from "./socket-loop.ts";
import type { Subject } from "./subject.ts";
import { type Figures, median, Notes, spread, timed } from "./table.ts";

const ENDPOINTS = 3;
const DEAD_PORT = 8081;
/** Number of changes whose time to the first connection is measured. */
const REACHED = 300;
/** A process that tries all the time gets this long without interference. */
const SETTLED_MS = 3;
const CHURNING_SERVICES = 20;
/** Warm-up changes. */
const UNTIMED_CHANGES = 200;
const CHANGES_PER_MS = 1;
const MB = 2 ** 20;

export async function measureEbpf(task: EbpfTask): Promise<unknown> {
  writeFileSync(join(task.cgroup, "cgroup.procs"), `${process.pid}`);
  makeReachable();
  switch (task.what) {
    case "maps":
      return await measureMaps(task);
    case "changes":
      return await measureChanges(task);
    case "churn":
      return await measureChurn(task);
    case "connect":
      await clusterIn(task);
      return await answerWays(task.services, ENDPOINTS);
  }
}

/** A cluster in the kernel. */
async function clusterIn(
  { mode, services, cgroup }: { readonly mode: string; readonly services: number; readonly cgroup: string },
  bpf?: Bpf,
): Promise<Subject> {
  const subject =
    mode === "ebpf"
      ? new EbpfSubject(ENDPOINTS, nftBackend("Flat"), cgroup, bpf)
      : new NftSubject(ENDPOINTS, mode === "flat" ? "Flat" : "Compatible");
  subject.load(services);
  await subject.fullSync();
  return subject;
}

/** Kernel memory for this process's maps. */
function mapBytes(): number {
  let bytes = 0;
  for (const fd of readdirSync("/proc/self/fdinfo")) {
    try {
      const text = readFileSync(join("/proc/self/fdinfo", fd), "utf8");
      if (text.includes("map_id")) bytes += Number(/^memlock:\s+(\d+)/m.exec(text)?.[1] ?? 0);
    } catch {
      // The descriptor used to read the folder.
    }
  }
  return bytes;
}

/** A watch line with a slice. @returns a function that delivers it. */
function watchLine(subject: Subject, index: number, endpointsEach: number, generation: number): () => void {
  const line = JSON.stringify({ type: "MODIFIED", object: apiSlice(index, endpointsEach, generation, 0) });
  return () => {
    const projected = projectEndpointSlice(JSON.parse(line).object);
    if (!projected.ok) throw new Error("the line is not a slice");
    subject.setSlice(index, projected.record);
  };
}

async function measureMaps({ services, changes, cgroup }: Extract<EbpfTask, { what: "maps" }>): Promise<Figures> {
  let [mapWorkMs, mapsDoneMs] = [0, 0];
  // The backend calls this for each changed service port: it finds the differences and writes them.
  const { set } = SocketMaps.prototype;
  SocketMaps.prototype.set = function timedSet(...args): void {
    const startMs = performance.now();
    set.apply(this, args);
    mapWorkMs += performance.now() - startMs;
  };
  // When a sync reaches its packet path, the maps are complete.
  const noted: typeof NO_PACKET_PATH = {
    ...NO_PACKET_PATH,
    sync: (...args) => {
      mapsDoneMs = performance.now();
      return NO_PACKET_PATH.sync(...args);
    },
  };
  const subject = new EbpfSubject(ENDPOINTS, noted, cgroup);
  subject.load(services);
  const { heapMb: modelMb } = await settledMemory();
  const fillCpuMs = await cpuMsOf(() => subject.fullSync());
  const { heapMb } = await settledMemory();
  const [effects, events, mapWork]: [number[], number[], number[]] = [[], [], []];
  const measure = async (samples: number[], change: () => void): Promise<void> => {
    await turn();
    mapWorkMs = 0;
    const startMs = performance.now();
    change();
    await subject.syncChanges();
    samples.push(mapsDoneMs - startMs);
    mapWork.push(mapWorkMs * 1000);
  };
  /** What the maps say about a service, read back. */
  const leads = (index: number): string | undefined =>
    subject.backend.socketPath.state.find((line) => line.startsWith(`TCP ${benchService(index).clusterIP} 80 `));
  for (let n = 0; n < changes; n += 1) {
    const index = subject.scattered(n);
    await measure(effects, () => subject.replaceEndpoint(index));
    const onLine = watchLine(subject, index, ENDPOINTS, Number(subject.sliceOf(index).resourceVersion));
    const before = n === 0 ? leads(index) : undefined;
    await measure(events, onLine);
    if (n === 0 && (before === undefined || leads(index) === before)) throw new Error("the maps have not changed");
  }
  const notes = new Notes();
  notes.add("maps filled, processor time", fillCpuMs, 2000);
  notes.add("an endpoint replaced, from the model to the maps", spread(effects));
  notes.add("  from the line of a watch, not yet parsed", spread(events));
  notes.add("  its work on maps, µs", spread(mapWork), 20);
  await measureReached(subject, notes);
  notes.add("heap, MB", heapMb - modelMb, 15);
  notes.add("memory of the kernel, MB", mapBytes() / MB, 45);
  return notes.figures;
}

/**
 * From a watch line until another process, which tries all the time, connects to the new endpoint. Until then each
 * attempt is refused.
 */
async function measureReached(subject: Subject, notes: Notes): Promise<void> {
  await startLoop(["serve", String(SERVER_PORT)]);
  const client = await startLoop(["reach"]);
  const [times, periodsUs]: [number[], number[]] = [[], []];
  for (let n = 0; n < REACHED; n += 1) {
    const index = subject.scattered(n);
    const { ports } = subject.sliceOf(index);
    subject.setSlice(index, { ...benchSlice(index, 1), ports: ports.map((port) => ({ ...port, port: DEAD_PORT })) });
    await subject.syncChanges();
    const onLine = watchLine(subject, index, 1, 1);
    client.tell([benchService(index).clusterIP, 80]);
    await client.next();
    await sleep(SETTLED_MS);
    const lineMs = Number(process.hrtime.bigint()) / 1e6;
    onLine();
    await subject.syncChanges();
    const { connectedMs, periodUs }: ReachFigures = JSON.parse(await client.next());
    times.push(connectedMs - lineMs);
    periodsUs.push(periodUs);
  }
  notes.add("from the line of a watch to the first connection", spread(times), 0.5);
  notes.add("  of which an attempt takes, µs", median(periodsUs));
}

/** From the model until the sync is done: everything the mode writes, including the nftables transaction. */
async function measureChanges(task: Extract<EbpfTask, { what: "changes" }>): Promise<Figures> {
  const subject = await clusterIn(task);
  const makes: Readonly<Record<string, (index: number) => void>> = {
    "an endpoint replaced": (index) => subject.replaceEndpoint(index),
    "a service removed": (index) => subject.setService(index, "delete"),
    "a service added": (index) => subject.setService(index, "add"),
  };
  const taken = Object.entries(makes).map(([kind, make]) => ({ kind, make, times: [] as number[], cpuMs: 0 }));
  for (let n = -UNTIMED_CHANGES; n < task.changes; n += 1) {
    const index = subject.scattered(Math.abs(n));
    for (const one of taken) {
      await turn();
      let tookMs = 0;
      const cpuMs = await cpuMsOf(async () => {
        tookMs = await timed(async () => {
          one.make(index);
          await subject.syncChanges();
        });
      });
      if (n < 0) continue;
      one.times.push(tookMs);
      one.cpuMs += cpuMs / task.changes;
    }
  }
  const notes = new Notes();
  for (const { kind, times, cpuMs } of taken) {
    const { p50, p99, worst } = spread(times);
    for (const [what, value] of Object.entries({ p50, p99, worst })) notes.add(`${kind}, ${what}`, value);
    notes.add(`${kind}, processor time`, cpuMs);
  }
  return notes.figures;
}

async function measureChurn({ connections, cgroup }: Extract<EbpfTask, { what: "churn" }>): Promise<ChurnFigures> {
  const { bpf, replacePrograms } = withTwins(kernelBpf());
  const subject = await clusterIn({ mode: "ebpf", services: CHURNING_SERVICES, cgroup }, bpf);
  await startLoop(["serve", String(SERVER_PORT)]);
  const client = await startLoop(["client"]);
  const targets = targetsOf("service", CHURNING_SERVICES, ENDPOINTS, CHURNING_SERVICES);
  const startMs = performance.now();
  let isOver = false;
  const connecting = client.ask<LoopFigures>({ load: "connect", targets, count: connections }).finally(() => {
    isOver = true;
  });
  let [changes, linkUpdates] = [0, 0];
  while (!isOver) {
    const due = (performance.now() - startMs) * CHANGES_PER_MS;
    for (; changes < due; changes += 1) subject.replaceEndpoint(changes % CHURNING_SERVICES);
    await subject.syncChanges();
    linkUpdates += replacePrograms();
    await turn();
  }
  const { failures } = await connecting;
  return { connections, failures, changes, linkUpdates, seconds: (performance.now() - startMs) / 1000 };
}

/** Loads each program twice, so that each hook's program can be replaced by one with the same instructions: LINK_UPDATE. */
function withTwins(bpf: Bpf): { readonly bpf: Bpf; replacePrograms(): number } {
  const twins = new Map<BpfProgram, BpfProgram>();
  const hooked = new Map<Pick<BpfLink, "replace">, readonly [BpfProgram, BpfProgram]>();
  return {
    bpf: {
      ...bpf,
      loadProgram: (program, place, maps) => {
        const one = bpf.loadProgram(program, place, maps);
        twins.set(one, bpf.loadProgram(program, place, maps));
        return one;
      },
      attach: (program, hook, cgroup) => {
        const link = bpf.attach(program, hook, cgroup);
        const replace = link.replace.bind(link);
        const known = { replace };
        const note = (of: BpfProgram): void => {
          const twin = twins.get(of);
          if (twin !== undefined) hooked.set(known, [of, twin]);
        };
        note(program);
        // Programs over larger maps have other twins.
        link.replace = (other, ...rest) => {
          replace(other, ...rest);
          note(other);
        };
        return link;
      },
    },
    replacePrograms() {
      for (const [link, [program, twin]] of hooked) {
        link.replace(twin);
        // Restores the program that the backend expects.
        link.replace(program);
      }
      return 2 * hooked.size;
    },
  };
}
