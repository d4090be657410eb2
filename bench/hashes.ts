/**
 * `npm run bench -- hashes`: what Services that choose by hash cost beside random ones, in nftables mode. Filling tables of slots takes no
 * kernel. A new connection is measured in one namespace, where every second Service has a hash; a load once with hashes and once without.
 */
import { readFileSync } from "node:fs";
import { sparseTables } from "../src/model/sparse-tables.ts";
import { LAYOUT_NAMES, type LayoutName } from "../src/modes/nftables/layout-name.ts";
import type { Hashing } from "../src/net/balancing.ts";
import { benchService, benchSlice, makeReachable } from "./cluster.ts";
import { askLoop, Rounds, SERVER_PORT, startLoop } from "./connections.ts";
import type { Bench } from "./driver.ts";
import { cpuMsOf, memoryNow, ownCpuMs, resetPeak } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import type { Target } from "./socket-loop.ts";
import { atMost, type Figures, Notes, numberOf, ratioOf, timed } from "./table.ts";

interface Size {
  readonly layout: LayoutName;
  readonly services: number;
  readonly endpoints: number;
}
type HashesTask =
  | { readonly part: "filling"; readonly endpoints: number }
  | (Size & { readonly part: "connections"; readonly hashing: Hashing; readonly rounds: number })
  | (Size & { readonly part: "load"; readonly hashing?: Hashing });

/** Microseconds (issue 49 A 3). */
const FILLING_US: Readonly<Record<number, number>> = { 3: 20, 1000: 2_000 };
const FILLINGS = [3, 10, 100, 1_000];
const CONNECTION_US = 6;
const CONNECTIONS = 100;
const SCATTER = 7919;
const HASHINGS = ["SourceHash", "FlowHash"] as const;
const PARTS = {
  filling: "tables of slots, processor time",
  connections: "to Services with and without a hash, side by side in one namespace",
  load: "of a cluster whose Services have two frontends, into an empty table",
};

export const bench: Bench = {
  name: "hashes",
  about: "What choosing an endpoint by hash costs in nftables mode, beside choosing at random. Needs root.",
  parts: PARTS,
  options: {
    quick: { help: "small, with few rounds" },
    layout: { value: "NAME", initial: "Flat", help: `of ${LAYOUT_NAMES.join(" and ")}` },
    endpoints: { value: "N", initial: "3", help: "of each Service" },
    connected: { value: "N", initial: "70000", quick: "1000", help: "Services for connections" },
    loaded: { value: "N", initial: "30000", quick: "1000", help: "Services for loads" },
    rounds: { value: "N", initial: "400", quick: "20", help: `of ${CONNECTIONS} connections each way` },
    runs: { value: "N", initial: "3", quick: "1", help: "of each load" },
  },
  tasks(given) {
    const size = { layout: given.oneOf("layout", LAYOUT_NAMES), endpoints: given.whole("endpoints") };
    const sides: readonly (Hashing | undefined)[] = [undefined, HASHINGS[0]];
    const all: Record<string, readonly HashesTask[]> = {};
    if (given.wants("filling"))
      for (const endpoints of FILLINGS) all[`filling, ${endpoints} endpoints`] = [{ part: "filling", endpoints }];
    if (given.wants("connections"))
      for (const hashing of HASHINGS) {
        const [services, rounds] = [given.whole("connected"), given.whole("rounds")];
        all[`connections, ${hashing}`] = [{ ...size, part: "connections", services, hashing, rounds }];
      }
    if (given.wants("load"))
      for (const hashing of sides) {
        const task: HashesTask = {
          ...size,
          part: "load",
          services: given.whole("loaded"),
          ...(hashing && { hashing }),
        };
        all[`load, ${hashing ?? "Random"}`] = Array(given.whole("runs")).fill(task);
      }
    return all;
  },
  judge(columns) {
    const ratios = ratioOf(columns[`load, ${HASHINGS[0]}`] ?? {}, columns["load, Random"] ?? {});
    return Object.entries(ratios).map(([name, figure]) =>
      atMost(`load, ${name.trim()}, as a multiple of random`, numberOf(figure) ?? 0, 2),
    );
  },
  worker: (task: HashesTask) =>
    task.part === "filling" ? measureFilling(task.endpoints) : task.part === "load" ? measureLoad(task) : connect(task),
};

const WARM_UP = 50;
const SETS = 20;

/** Processor time per filling, of different sets in turn. */
function measureFilling(endpoints: number): Promise<Figures> {
  const sets = Array.from({ length: SETS }, (_, index) =>
    benchSlice(index, endpoints).endpoints.map(({ address: ip }) => ({ ip, port: SERVER_PORT })),
  );
  const fillings = Math.max(1_000, 100_000 / endpoints);
  let beforeMs = 0;
  for (let n = -WARM_UP * SETS; n < fillings; n += 1) {
    if (n === 0) beforeMs = ownCpuMs();
    sparseTables(sets[Math.abs(n) % SETS] ?? [], 1);
  }
  const notes = new Notes();
  notes.add("filling, µs", (1000 * (ownCpuMs() - beforeMs)) / fillings, FILLING_US[endpoints]);
  return Promise.resolve(notes.figures);
}

/** A cluster in the model, its Services with two frontends if they are for a load. @param hashingOf by number of a Service. */
function clusterOf(
  { layout, services, endpoints, part }: Size & { readonly part: string },
  hashingOf: (index: number) => Hashing | undefined,
): NftSubject {
  const subject = new NftSubject(endpoints, layout);
  for (let index = 0; index < services; index += 1) {
    const balancing = hashingOf(index);
    const externalIPs = part === "load" ? [`172.${16 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`] : [];
    const object = { ...benchService(index), externalIPs, ...(balancing && { balancing }) };
    subject.state.onService({ kind: "add", object });
    subject.state.onEndpointSlice({ kind: "add", object: benchSlice(index, endpoints) });
  }
  subject.state.applyChanges();
  return subject;
}

/** Loads it. @returns the number of elements. */
async function loaded(subject: NftSubject): Promise<number> {
  const transactions = await subject.operationsOf(() => subject.fullSync(), true);
  return transactions
    .flat()
    .reduce((sum, operation) => sum + (operation.kind === "add-elements" ? operation.elements.length : 0), 0);
}

/** Memory of the kernel that its tables take, in MB: of the whole machine. */
function kernelMb(): number {
  const text = readFileSync("/proc/meminfo", "utf8");
  const kb = (field: string): number => Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(text)?.[1]);
  return (kb("SUnreclaim") + kb("VmallocUsed")) / 1024;
}

async function measureLoad(task: HashesTask & { readonly part: "load" }): Promise<Figures> {
  const subject = clusterOf(task, () => task.hashing);
  const before = kernelMb();
  resetPeak();
  let [elements, cpuMs] = [0, 0];
  const clockMs = await timed(async () => {
    cpuMs = await cpuMsOf(async () => {
      elements = await loaded(subject);
    });
  });
  const notes = new Notes();
  notes.add("full sync, ms", clockMs);
  notes.add("  processor time, ms", cpuMs);
  notes.add("  in the kernel, ms", subject.kernelMs);
  notes.add("elements", elements);
  notes.add("kernel memory, MB", kernelMb() - before);
  notes.add("own memory at its peak, MB", memoryNow().peakMb);
  return notes.figures;
}

/** Even Services choose at random, odd ones by hash. Each round has other Services, as a client that comes once meets them. */
async function connect(task: HashesTask & { readonly part: "connections" }): Promise<Figures> {
  const { services, rounds, hashing } = task;
  makeReachable();
  const subject = clusterOf(task, (index) => (index % 2 === 0 ? undefined : hashing));
  const elements = await loaded(subject);
  await startLoop(["serve", String(SERVER_PORT)]);
  const client = await startLoop(["client"]);
  let turn = 0;
  const ask = (odd: number) => () => {
    turn += 1;
    const pairs = Math.floor(services / 2);
    const targets = Array.from({ length: CONNECTIONS }, (_, n): Target => {
      const index = 2 * (((turn * CONNECTIONS + n) * SCATTER) % pairs) + odd;
      return [benchService(index).clusterIP, 80];
    });
    return askLoop(client, { load: "connect", count: CONNECTIONS, targets });
  };
  const found = new Rounds();
  await found.take({ random: ask(0), hashed: ask(1) }, rounds);
  const notes = new Notes();
  notes.add("elements", elements);
  for (const [what, figure, limit] of [
    ["until connected", "us", CONNECTION_US],
    ["processor time", "cpuUs"],
  ] as const) {
    for (const arm of ["random", "hashed"]) notes.add(`${what}, ${arm}, µs`, found.middle(arm, figure));
    const { median, low, high } = found.difference("hashed", "random", figure);
    notes.add(`${what}, dearer, µs`, median, limit);
    notes.add(`  ${what}, with 95 %, µs`, `${low.toFixed(1)} to ${high.toFixed(1)}`);
  }
  return notes.figures;
}
