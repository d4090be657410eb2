/** One proof. Argument: a ProveTask as JSON; the figures go to standard output. */
import { VARIANTS } from "../src/cli/prove-rules.ts";
import { offlineNode } from "../src/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { parseIpAddress } from "../src/net/ip.ts";
import { prove, type Side } from "../src/prove/proof.ts";
import { planSide, specificationSide } from "../src/prove/sides.ts";
import { benchObjects, NODE_ADDRESS } from "./cluster.ts";
import { memoryNow, ownCpuMs } from "./memory.ts";
import type { ProveFigures, ProveTask } from "./prove.ts";

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

process.stdout.write(JSON.stringify(await measure(JSON.parse(process.argv[2] ?? ""))));
