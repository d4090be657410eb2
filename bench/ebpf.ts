/**
 * `npm run bench -- ebpf`: what the socket programs cost and save: a connection, a change, the maps of a large cluster, and connections
 * while everything changes. See docs/ebpf.md.
 */
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import { type LineProcess, startLines } from "./bench-processes.ts";
import { between, type Figure, middle, ofDirect, type Round, takeRounds, type Way } from "./connect-arms.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import {
  CHANGE_KINDS,
  type ChangedMode,
  type ChangesFigures,
  type ChurnFigures,
  type ConnectedMode,
  type EbpfTask,
  type MapsFigures,
} from "./ebpf-figures.ts";
import { estimateText, judgeEstimate } from "./estimate.ts";
import { atExit, withNamespace } from "./namespace.ts";
import { engineOptions } from "./run-worker.ts";
import { median, table } from "./table.ts";
import type { Verdict } from "./targets.ts";

const WORKER = fileURLToPath(new URL("./ebpf-worker.ts", import.meta.url));
/** Issue 13. */
const TARGET = {
  ratio: 1.02,
  saved: 0.05,
  mapWorkUs: 20,
  effectMs: 0.5,
  fillMs: 2000,
  kernelMb: 45,
  heapMb: 15,
  failures: 0,
} as const;
/** Pairs of namespaces, one after the other: what differs between two with the same work is up to 10 %. */
const PAIRS = 3;
const FIGURES: readonly (readonly [string, Figure])[] = [
  ["until connected", "p50Us"],
  ["processor", "cpuUs"],
];
const CHANGES = { services: 10_000, changes: 2000 } as const;
const FIGURE_NAMES = { p50Ms: "p50, ms", p99Ms: "p99, ms", worstMs: "worst, ms", cpuMs: "processor time, ms" } as const;
const REMOVAL_ATTEMPTS = 100;

export const bench: Bench = {
  name: "ebpf",
  about: "What the eBPF mode costs. Needs root, a cgroup2 file system, and a kernel that lets the programs run.",
  parts: {
    maps: "100,000 services × 3: the first fill, a change, memory; beside the packet path",
    changes:
      "an endpoint replaced, a service removed and added among 10,000 × 3: maps and rules, beside the flat layout alone, in turns",
    connect:
      "a TCP connection to a service and to its endpoint, in turns with the nftables mode in the compatible layout",
    churn: "connections during 1,000 changes a second, while programs are replaced all the time",
  },
  options: {
    sizes: { value: "N,…", initial: "100,1000,10000", help: "services for connect" },
    rounds: { value: "N", initial: "450", help: "of connect, 100 connections each way" },
    services: { value: "N", initial: "100000", help: "for maps" },
    connections: { value: "N", initial: "30000", help: "of churn" },
  },
  run: measure,
};

async function measure(given: Given): Promise<Outcome> {
  const isWanted = (part: string): boolean => given.parts.length === 0 || given.parts.includes(part);
  const verdicts: Verdict[] = [];
  if (isWanted("maps")) verdicts.push(...(await benchMaps(given.whole("services"))));
  if (isWanted("changes")) await benchChanges();
  if (isWanted("connect")) {
    const sizes = given.wholes("sizes");
    verdicts.push(...(await benchConnections(sizes, given.whole("rounds"))));
  }
  if (isWanted("churn")) verdicts.push(await benchChurn(given.whole("connections")));
  return { verdicts };
}

async function benchMaps(services: number): Promise<readonly Verdict[]> {
  const figures = await withWorker(
    { what: "maps", services, changes: 2000 },
    async (worker): Promise<MapsFigures> => JSON.parse(await worker.next()),
  );
  const { fillCpuMs, heapMb, kernelMb, mapWorkP50Us, mapWorkP99Us } = figures;
  const { effectP50Ms, effectP99Ms, eventP50Ms, eventP99Ms, reachedP50Ms, reachedP99Ms, attemptUs } = figures;
  console.log(
    table(
      [`${services} services × 3`, ""],
      [
        ["maps filled, processor ms", fillCpuMs.toFixed(0)],
        ["an endpoint replaced, from model to maps, p50, ms", effectP50Ms.toFixed(3)],
        ["  p99", effectP99Ms.toFixed(3)],
        ["the same from the line of a watch, p50, ms", eventP50Ms.toFixed(3)],
        ["  p99", eventP99Ms.toFixed(3)],
        [`from there to the first connection to it, p50 of ${figures.reachedCount}, ms`, reachedP50Ms.toFixed(3)],
        ["  p99", reachedP99Ms.toFixed(3)],
        ["  an attempt to connect takes, µs", attemptUs.toFixed(0)],
        ["of it the maps, p50, µs", mapWorkP50Us.toFixed(1)],
        ["  p99", mapWorkP99Us.toFixed(1)],
        ["heap, MB", heapMb.toFixed(1)],
        ["memory of the kernel, MB", kernelMb.toFixed(1)],
      ],
    ),
  );
  return [
    atMost("maps filled, ms", fillCpuMs, TARGET.fillMs),
    atMost("an endpoint replaced, work on maps, p50, µs", mapWorkP50Us, TARGET.mapWorkUs),
    atMost(
      "an endpoint replaced, from the line of a watch to a connection to it, p50, ms",
      reachedP50Ms,
      TARGET.effectMs,
    ),
    atMost("heap, MB", heapMb, TARGET.heapMb),
    atMost("memory of the kernel, MB", kernelMb, TARGET.kernelMb),
  ];
}

/** In turns, because the machine is another one from minute to minute. */
async function benchChanges(): Promise<void> {
  const measure = async (mode: ChangedMode): Promise<ChangesFigures> =>
    await withWorker({ what: "changes", mode, ...CHANGES }, async (worker) => JSON.parse(await worker.next()));
  const taken: Record<ChangedMode, ChangesFigures[]> = { ebpf: [], flat: [] };
  for (let pair = 1; pair <= PAIRS; pair += 1) {
    process.stderr.write(`changing among ${CHANGES.services} services, ${pair} of ${PAIRS}…\n`);
    for (const mode of ["ebpf", "flat"] as const) taken[mode].push(await measure(mode));
  }
  const rows = CHANGE_KINDS.flatMap((kind) =>
    (["p50Ms", "p99Ms", "worstMs", "cpuMs"] as const).map((figure) => {
      const middle = (mode: ChangedMode): number => median(taken[mode].map((one) => one[kind][figure]));
      const [ebpf, flat] = [middle("ebpf"), middle("flat")];
      return [`${kind}: ${FIGURE_NAMES[figure]}`, ebpf.toFixed(3), flat.toFixed(3), (ebpf / flat).toFixed(2)];
    }),
  );
  console.log(table([`${CHANGES.services} services × 3`, "ebpf: maps and rules", "flat", "ratio"], rows));
}

async function benchConnections(sizes: readonly number[], rounds: number): Promise<readonly Verdict[]> {
  const rows: string[][] = [];
  const verdicts: Verdict[] = [];
  for (const services of sizes) {
    const taken: Round<ConnectedMode>[] = [];
    for (let pair = 1; pair <= PAIRS; pair += 1) {
      process.stderr.write(`connecting among ${services} services, namespaces ${pair} of ${PAIRS}…\n`);
      const subject = (mode: ConnectedMode) => ({ what: "connect", mode, services }) as const;
      const some = await withWorker(subject("ebpf"), (ebpf) =>
        withWorker(subject("compatible"), (compatible) => takeRounds({ ebpf, compatible }, Math.ceil(rounds / PAIRS))),
      );
      taken.push(...some);
    }
    for (const [what, figure] of FIGURES) {
      const us = (name: ConnectedMode, way: Way): string => middle(taken, name, way, figure).toFixed(1);
      rows.push([
        `${services}, ${what}`,
        ...[us("ebpf", "direct"), us("ebpf", "service"), estimateText(ofDirect(taken, "ebpf", figure))],
        ...[us("compatible", "direct"), us("compatible", "service")],
        estimateText(ofDirect(taken, "compatible", figure)),
        estimateText(between(taken, ["ebpf", "compatible"], "service", figure)),
      ]);
    }
    const ratio = ofDirect(taken, "ebpf", "p50Us");
    const saved = between(taken, ["ebpf", "compatible"], "service", "p50Us");
    verdicts.push(
      judgeEstimate(`${services} services: a connection to a service, of a direct one`, ratio, TARGET.ratio),
      judgeEstimate(`${services} services: of one in nftables mode`, saved, 1 - TARGET.saved),
    );
  }
  const head = [
    "services, µs",
    "ebpf: direct",
    "service",
    "ratio",
    "compatible: direct",
    "service",
    "ratio",
    "ebpf : compatible",
  ];
  console.log(
    `connect(), medians of ${rounds} rounds of 100 connections each way, and where the median lies at 95 %\n${table(head, rows)}`,
  );
  return verdicts;
}

async function benchChurn(wanted: number): Promise<Verdict> {
  const { connections, failures, changes, linkUpdates, seconds }: ChurnFigures = await withWorker(
    { what: "churn", connections: wanted },
    async (worker) => JSON.parse(await worker.next()),
  );
  const rate = (count: number): string => (count / seconds).toFixed(0);
  console.log(
    `${connections} connections in ${seconds.toFixed(1)} s: ${failures} failed; ${changes} changes (${rate(changes)}/s), ${linkUpdates} programs replaced (${rate(linkUpdates)}/s)`,
  );
  return atMost("failed connections during changes", failures, TARGET.failures);
}

function atMost(what: string, value: number, limit: number): Verdict {
  const figure = Number.isInteger(value) ? String(value) : value.toFixed(3);
  return { passed: value <= limit, text: `${what}: ${figure}, at most ${limit} wanted` };
}

type Startable<Task> = Task extends unknown ? Omit<Task, "cgroup"> : never;

let made = 0;

/** Starts a worker in a namespace and a cgroup of its own. */
async function withWorker<T>(task: Startable<EbpfTask>, work: (worker: LineProcess) => Promise<T>): Promise<T> {
  const mount = cgroupMount();
  if (mount === undefined) throw new Error("no cgroup2 file system is mounted");
  const cgroup = join(mount, `kpts-bench-${process.pid}-${made++}`);
  mkdirSync(cgroup);
  const remove = atExit(() => endCgroup(cgroup));
  try {
    return await withNamespace(async ({ name }) => {
      const node = [process.execPath, "--expose-gc", ...engineOptions(), WORKER];
      // `ip netns exec` would hide the cgroups.
      const words = [`--net=/run/netns/${name}`, ...node, JSON.stringify({ ...task, cgroup })];
      const worker = startLines("nsenter", words);
      try {
        if (task.what === "connect") await worker.next();
        return await work(worker);
      } finally {
        worker.end();
      }
    });
  } finally {
    remove();
  }
}

/** With all that runs in it. The kernel lets go of a process some time after its end. */
export function endCgroup(cgroup: string): void {
  writeFileSync(join(cgroup, "cgroup.kill"), "1");
  for (let attempt = 0; ; attempt += 1) {
    try {
      rmdirSync(cgroup);
      return;
    } catch (error) {
      if (attempt >= REMOVAL_ATTEMPTS) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
  }
}
