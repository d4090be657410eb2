/**
 * `npm run bench -- prove`: what a proof takes, processor time and memory of a process of its own with the plans in it. Needs no root.
 */
import { fileURLToPath } from "node:url";
import { type Bench, type Outcome, workerFigures } from "./driver.ts";
import { megabytes, table } from "./table.ts";
import type { Verdict } from "./targets.ts";

const WORKER = fileURLToPath(new URL("./prove-worker.ts", import.meta.url));
const PAIR = ["nftables", "flat"] as const;
/** Of a pair of nftables layouts: seconds by how many Services there are, and megabytes. */
const WANTED_S: Readonly<Record<number, number>> = { 100: 1, 1000: 5, 10000: 60 };
const WANTED_MB = 500;
/** Each is a kind of client, and may be led to each: the work grows with their square. */
const MANY_ENDPOINTS = 200;
const MODES = ["nftables", "flat", "iptables", "ipvs", "userspace", "ebpf"];

export interface ProveTask {
  readonly services: number;
  readonly endpoints: number;
  /** Names of variants, or `specification`, which has the documented differences of the first. */
  readonly sides: readonly string[];
}

export interface ProveFigures {
  readonly classes: number;
  readonly planMs: number;
  readonly proofMs: number;
  readonly peakMb: number;
}

export const bench: Bench = {
  name: "prove",
  about: "What kube-proxy prove takes beyond loading, processor time and memory.",
  needsRoot: false,
  options: {
    services: { value: "N", initial: "1000", help: "Services of the proofs of each mode beside the specification" },
  },
  run: (given) => measure(given.whole("services")),
};

async function measure(services: number): Promise<Outcome> {
  const tasks: ProveTask[] = [
    ...Object.keys(WANTED_S).map((count) => ({ services: Number(count), endpoints: 5, sides: PAIR })),
    ...MODES.map((mode) => ({ services, endpoints: 5, sides: [mode, "specification"] })),
    ...MODES.map((mode) => ({ services: 1, endpoints: MANY_ENDPOINTS, sides: [mode, "specification"] })),
  ];
  const rows: string[][] = [];
  const verdicts: Verdict[] = [];
  const results: (ProveTask & ProveFigures)[] = [];
  for (const task of tasks) {
    const what = `${task.services} Services, ${task.endpoints} endpoints each: ${task.sides.join(", ")}`;
    const figures: ProveFigures = await workerFigures({ script: WORKER, task, isOnHost: true });
    const { classes, planMs, proofMs, peakMb } = figures;
    results.push({ ...task, ...figures });
    console.log(`${what}: ${(proofMs / 1_000).toFixed(1)} s`);
    rows.push([
      what,
      String(classes),
      ...[planMs, proofMs].map((value) => (value / 1_000).toFixed(1)),
      megabytes(peakMb),
    ]);
    const wanted = task.sides === PAIR ? WANTED_S[task.services] : undefined;
    if (wanted === undefined) continue;
    const text = `${what}: ${(proofMs / 1_000).toFixed(1)} s and ${megabytes(peakMb)} MB, ${wanted} s and ${WANTED_MB} MB wanted`;
    verdicts.push({ passed: proofMs <= wanted * 1_000 && peakMb <= WANTED_MB, text });
  }
  console.log(table(["", "classes", "plans, s", "proof, s", "at most, MB"], rows));
  return { verdicts, figures: { results } };
}
