/**
 * `npm run bench -- ebpf`: what the socket programs cost and save: a connection, a change, the maps of a large cluster,
 * and connections while everything changes. See docs/ebpf.md.
 */
import { ComparedConnections } from "./connections.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { judgeEstimate } from "./estimate.ts";
import { withCgroup, withNamespace } from "./namespace.ts";
import { atMost, type Figures, figuresTable, judgeFigures, middleOf, ratioOf, type Verdict } from "./table.ts";
import { type LineProcess, startWorker } from "./workers.ts";

type Task =
  | { readonly what: "maps"; readonly services: number; readonly changes: number }
  /** Socket programs in front of the flat rules, or the rules of the nftables mode in upstream's layout. */
  | { readonly what: "connect"; readonly mode: "ebpf" | "compatible"; readonly services: number }
  /** Maps and rules, or only the same rules. */
  | { readonly what: "changes"; readonly mode: "ebpf" | "flat"; readonly services: number; readonly changes: number }
  | { readonly what: "churn"; readonly connections: number };
export type EbpfTask = Task & { readonly cgroup: string };

export interface ChurnFigures {
  readonly connections: number;
  readonly failures: number;
  readonly changes: number;
  readonly linkUpdates: number;
  readonly seconds: number;
}

/** Issue 13. */
const RATIO = 1.02;
const SAVED = 0.05;
/** Pairs of namespaces, one after the other: two namespaces with the same work differ by up to 10 %. */
const PAIRS = 3;
const CHANGED_SERVICES = 10_000;

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
    quick: { help: "few repetitions, small sizes" },
    sizes: { value: "N,…", initial: "100,1000,10000", quick: "100", help: "services for connect" },
    rounds: { value: "N", initial: "450", quick: "30", help: "of connect, 100 connections each way" },
    services: { value: "N", initial: "100000", quick: "1000", help: "for maps" },
    changes: { value: "N", initial: "2000", quick: "100", help: "of maps and changes" },
    connections: { value: "N", initial: "30000", quick: "3000", help: "of churn" },
  },
  run: measure,
  async worker(task: EbpfTask) {
    const { measureEbpf } = await import("./ebpf-worker.ts");
    return await measureEbpf(task);
  },
};

async function measure(given: Given): Promise<Outcome> {
  const verdicts: Verdict[] = [];
  const changes = given.whole("changes");
  if (given.wants("maps")) verdicts.push(...(await benchMaps(given.whole("services"), changes)));
  if (given.wants("changes")) await benchChanges(changes);
  if (given.wants("connect")) {
    for (const services of given.wholes("sizes")) {
      verdicts.push(...(await benchConnections(services, given.whole("rounds"))));
    }
  }
  if (given.wants("churn")) verdicts.push(await benchChurn(given.whole("connections")));
  return { verdicts };
}

async function benchMaps(services: number, changes: number): Promise<readonly Verdict[]> {
  const columns = { [`${services} services × 3`]: await figuresOf<Figures>({ what: "maps", services, changes }) };
  console.log(figuresTable("maps, ms", columns));
  return judgeFigures(columns);
}

/** In turns, because the machine changes from minute to minute. */
async function benchChanges(changes: number): Promise<void> {
  const taken: Record<"ebpf" | "flat", Figures[]> = { ebpf: [], flat: [] };
  for (let pair = 1; pair <= PAIRS; pair += 1) {
    process.stderr.write(`changing among ${CHANGED_SERVICES} services, ${pair} of ${PAIRS}…\n`);
    for (const mode of ["ebpf", "flat"] as const) {
      taken[mode].push(await figuresOf({ what: "changes", mode, services: CHANGED_SERVICES, changes }));
    }
  }
  const [ebpf, flat] = [middleOf(taken.ebpf), middleOf(taken.flat)];
  console.log(
    figuresTable(`${CHANGED_SERVICES} services × 3, ms`, { "maps and rules": ebpf, flat, ratio: ratioOf(ebpf, flat) }),
  );
}

async function benchConnections(services: number, rounds: number): Promise<readonly Verdict[]> {
  const compared = new ComparedConnections("ebpf", "compatible");
  for (let pair = 1; pair <= PAIRS; pair += 1) {
    process.stderr.write(`connecting among ${services} services, namespaces ${pair} of ${PAIRS}…\n`);
    await withWorker({ what: "connect", mode: "ebpf", services }, (ebpf) =>
      withWorker({ what: "connect", mode: "compatible", services }, (compatible) =>
        compared.take([ebpf, compatible], Math.ceil(rounds / PAIRS)),
      ),
    );
  }
  const how = `medians of ${rounds} rounds of 100 connections each way, and where the median lies at 95 %`;
  console.log(`connect(), ${how}\n${compared.table(services)}`);
  return [
    judgeEstimate(`${services} services: a connection to a service, of a direct one`, compared.ofDirect("ebpf"), RATIO),
    judgeEstimate(`${services} services: of one in nftables mode`, compared.between("service"), 1 - SAVED),
  ];
}

async function benchChurn(wanted: number): Promise<Verdict> {
  const task = { what: "churn", connections: wanted } as const;
  const { connections, failures, changes, linkUpdates, seconds } = await figuresOf<ChurnFigures>(task);
  const rate = (count: number): string => (count / seconds).toFixed(0);
  console.log(
    `${connections} connections in ${seconds.toFixed(1)} s: ${failures} failed; ${changes} changes (${rate(changes)}/s), ${linkUpdates} programs replaced (${rate(linkUpdates)}/s)`,
  );
  return atMost("failed connections during changes", failures, 0);
}

const figuresOf = <Figures>(task: Task): Promise<Figures> =>
  withWorker(task, async (worker) => JSON.parse(await worker.next()));

/** Starts a worker in its own namespace and cgroup. */
function withWorker<T>(task: Task, work: (worker: LineProcess) => Promise<T>): Promise<T> {
  return withCgroup((cgroup) =>
    withNamespace(async (namespace) => {
      const worker = startWorker("ebpf", { ...task, cgroup }, namespace);
      try {
        return await work(worker);
      } finally {
        worker.end();
      }
    }),
  );
}
