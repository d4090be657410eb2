/** `npm run bench -- prove`: the cost of a proof, in processor time and memory of its own process, which holds the plans. Needs no root. */

import { offlineNode } from "../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { parseIpAddress } from "../src/net/ip.ts";
import { VARIANTS } from "../src/tools/cli/prove-rules.ts";
import type { Side } from "../src/tools/prove/proof.ts";
import { planSide, specificationSide } from "../src/tools/prove/sides.ts";
import { prove } from "../testkit/support/prove.ts";
import { benchObjects, NODE_ADDRESS } from "./cluster.ts";
import type { Bench } from "./driver.ts";
import { memoryNow, ownCpuMs } from "./memory.ts";
import { type Figures, Notes } from "./table.ts";

const SPECIFICATION = "specification";
const PAIR = ["nftables", "flat"] as const;
/** For a pair of nftables layouts: seconds by number of Services, and megabytes. */
const WANTED_S: Readonly<Record<number, number>> = { 100: 1, 1000: 5, 10000: 60 };
const WANTED_MB = 500;
/** Each endpoint is a kind of client, and may be led to each: the work grows with their square. */
const MANY_ENDPOINTS = 200;
const MODES = ["nftables", "flat", "iptables", "ipvs", "userspace", "ebpf"];

interface ProveTask {
  readonly services: number;
  readonly endpoints: number;
  /** Names of variants, or `specification`, which includes the documented differences of the first. */
  readonly sides: readonly string[];
  readonly wantedS?: number;
}

export const bench: Bench = {
  name: "prove",
  about: "What kube-proxy prove takes beyond loading, processor time and memory.",
  needsRoot: false,
  options: {
    services: { value: "N", initial: "1000", help: "Services of the proofs of each mode beside the specification" },
  },
  isOnHost: true,
  tasks(given) {
    const services = given.whole("services");
    const all: readonly ProveTask[] = [
      ...Object.entries(WANTED_S).map(([count, wantedS]) => {
        return { services: Number(count), endpoints: 5, sides: PAIR, wantedS };
      }),
      ...MODES.map((mode) => ({ services, endpoints: 5, sides: [mode, SPECIFICATION] })),
      ...MODES.map((mode) => ({ services: 1, endpoints: MANY_ENDPOINTS, sides: [mode, SPECIFICATION] })),
    ];
    return Object.fromEntries(
      all.map((task) => [`${task.services} × ${task.endpoints}: ${task.sides.join(", ")}`, [task]]),
    );
  },
  worker: measure,
};

const NODE = "node-a";
const RECORD = {
  ...{ name: NODE, uid: "", zone: undefined, podCIDRs: [], taintKeys: [], isBeingDeleted: false },
  addresses: [{ type: "InternalIP", address: NODE_ADDRESS }],
};

async function measure({ services, endpoints, sides, wantedS }: ProveTask): Promise<Figures> {
  const cluster = { ...benchObjects(services, endpoints), nodes: [RECORD], problems: [] };
  const before = ownCpuMs();
  const found: Side[] = [];
  for (const name of sides) {
    const variant = VARIANTS.find((one) => one.name === (name === SPECIFICATION ? sides[0] : name));
    if (variant === undefined) throw new Error(`${name} cannot be proved`);
    const settings = { config: { clusterCIDR: "10.128.0.0/9" }, mode: variant.mode, node: NODE };
    const { config } = await checkedSettings({ ...settings, ...(variant.choose && { adjust: variant.choose }) });
    const node = offlineNode(cluster, config, "IPv4", () => {});
    if (name !== SPECIFICATION) found.push(await planSide(name, node, config));
    else found.push(specificationSide(cluster, node, config, variant.deviations(config), found[0]?.ownSockets));
  }
  const [one, other] = found;
  if (one === undefined || other === undefined) throw new Error("a proof has two sides");
  const own = ["127.0.0.1", NODE_ADDRESS].flatMap((address) => parseIpAddress(address) ?? []);
  const planMs = ownCpuMs() - before;
  const { classes, differing, unprovable } = prove("IPv4", own, [one, other]);
  if (differing > 0 || unprovable !== undefined) throw new Error(unprovable ?? "they differ");
  const notes = new Notes();
  notes.add("classes", classes);
  notes.add("plans, s", planMs / 1000);
  notes.add("proof, s", (ownCpuMs() - before - planMs) / 1000, wantedS);
  notes.add("at most, MB", memoryNow().peakMb, wantedS && WANTED_MB);
  return notes.figures;
}
