/**
 * `npm run bench -- prove`: what a proof takes, processor time and memory of a process of its own with the plans in it. Needs no root.
 */
import { VARIANTS } from "../src/cli/prove-rules.ts";
import { offlineNode } from "../src/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { parseIpAddress } from "../src/net/ip.ts";
import { prove, type Side } from "../src/prove/proof.ts";
import { planSide, specificationSide } from "../src/prove/sides.ts";
import { benchObjects, NODE_ADDRESS } from "./cluster.ts";
import type { Bench, Outcome } from "./driver.ts";
import { memoryNow, ownCpuMs } from "./memory.ts";
import { atMost, fixed, megabytes, table, type Verdict } from "./table.ts";
import { inWorker } from "./workers.ts";

const PAIR = ["nftables", "flat"] as const;
/** Of a pair of nftables layouts: seconds by how many Services there are, and megabytes. */
const WANTED_S: Readonly<Record<number, number>> = { 100: 1, 1000: 5, 10000: 60 };
const WANTED_MB = 500;
/** Each is a kind of client, and may be led to each: the work grows with their square. */
const MANY_ENDPOINTS = 200;
const MODES = ["nftables", "flat", "iptables", "ipvs", "userspace", "ebpf"];

interface ProveTask {
  readonly services: number;
  readonly endpoints: number;
  /** Names of variants, or `specification`, which has the documented differences of the first. */
  readonly sides: readonly string[];
}

interface ProveFigures {
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
  run: (given) => measureAll(given.whole("services")),
  worker: measure,
};

async function measureAll(services: number): Promise<Outcome> {
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
    const figures: ProveFigures = await inWorker("prove", task, true);
    const { classes, planMs, proofMs, peakMb } = figures;
    results.push({ ...task, ...figures });
    console.log(`${what}: ${seconds(proofMs)} s`);
    rows.push([what, String(classes), seconds(planMs), seconds(proofMs), megabytes(peakMb)]);
    const wanted = task.sides === PAIR ? WANTED_S[task.services] : undefined;
    if (wanted === undefined) continue;
    verdicts.push(atMost(`${what}: s`, proofMs / 1_000, wanted, fixed(1)), atMost(`${what}: MB`, peakMb, WANTED_MB));
  }
  console.log(table(["", "classes", "plans, s", "proof, s", "at most, MB"], rows));
  return { verdicts, figures: { results } };
}

const seconds = (milliseconds: number): string => (milliseconds / 1_000).toFixed(1);

const NODE = "node-a";
const RECORD = {
  ...{ name: NODE, uid: "", zone: undefined, podCIDRs: [], taintKeys: [], isBeingDeleted: false },
  addresses: [{ type: "InternalIP", address: NODE_ADDRESS }],
};

async function measure({ services, endpoints, sides }: ProveTask): Promise<ProveFigures> {
  const cluster = { ...benchObjects(services, endpoints), nodes: [RECORD], problems: [] };
  const before = ownCpuMs();
  const found: Side[] = [];
  for (const name of sides) {
    const variant = VARIANTS.find((one) => one.name === (name === "specification" ? sides[0] : name));
    if (variant === undefined) throw new Error(`${name} cannot be proved`);
    const settings = { config: { clusterCIDR: "10.128.0.0/9" }, mode: variant.mode, node: NODE };
    const { config } = await checkedSettings({ ...settings, ...(variant.choose && { adjust: variant.choose }) });
    const node = offlineNode(cluster, config, "IPv4", () => {});
    if (name !== "specification") found.push(await planSide(name, node, config));
    else found.push(specificationSide(cluster, node, config, variant.deviations(config), found[0]?.ownSockets));
  }
  const [one, other] = found;
  if (one === undefined || other === undefined) throw new Error("a proof has two sides");
  const own = ["127.0.0.1", NODE_ADDRESS].flatMap((address) => parseIpAddress(address) ?? []);
  const planMs = ownCpuMs() - before;
  const { classes, differing, unprovable } = prove("IPv4", own, [one, other]);
  if (differing > 0 || unprovable !== undefined) throw new Error(unprovable ?? "they differ");
  return { classes, planMs, proofMs: ownCpuMs() - before - planMs, peakMb: memoryNow().peakMb };
}
