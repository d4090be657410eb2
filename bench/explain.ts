/**
 * `npm run bench -- explain`: the cost of `kube-proxy explain` beyond loading, for one Service and for each name that it has
 * in the kernel, among many. Processor time of the main thread, so that a busy machine counts little. Needs no root.
 */

import { checkedSettings } from "../src/lib/plan-settings.ts";
import { modeNamed, type ProxyMode } from "../src/modes/registry.ts";
import { explainedCluster, explainPorts } from "../src/tools/explain/explained-cluster.ts";
import { find } from "../src/tools/explain/find.ts";
import { partOf, servicesOfTarget } from "../src/tools/explain/part-of-cluster.ts";
import { parseTarget } from "../src/tools/explain/target.ts";
import { explanationText } from "../src/tools/explain/text.ts";
import { benchObjects, benchService } from "./cluster.ts";
import type { Bench } from "./driver.ts";
import { ownCpuMs } from "./memory.ts";
import { type Figures, Notes } from "./table.ts";

/** Target, beyond loading. */
const EXPLAIN_MS = 300;
const MODES: readonly ProxyMode[] = ["nftables", "iptables", "ipvs", "userspace"];

/** Names that nothing has. */
const NOT_THERE = { "a node port": "29999", "an address": "10.255.255.254:80", "a name": "no-such-chain" };

export const bench: Bench = {
  name: "explain",
  about: "What kube-proxy explain takes beyond loading, processor time.",
  needsRoot: false,
  options: {
    services: { value: "N", initial: "10000", help: "how many there are" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each" },
  },
  isOnHost: true,
  tasks: (given) =>
    Object.fromEntries(
      MODES.map((mode): [string, [ExplainTask]] => {
        return [mode, [{ mode, services: given.whole("services"), endpoints: given.whole("endpoints") }]];
      }),
    ),
  worker: measure,
};

interface ExplainTask {
  readonly mode: ProxyMode;
  readonly services: number;
  readonly endpoints: number;
}

async function measure({ mode, services, endpoints }: ExplainTask): Promise<Figures> {
  const objects = benchObjects(services, endpoints);
  const notes = new Notes();
  const { config } = await checkedSettings({ config: { mode, clusterCIDR: "10.128.0.0/9" }, node: "node-a" });
  const inspection = await modeNamed(mode).loadInspection();
  const explained = async (what: string) => {
    const target = parseTarget(what, undefined);
    if (target === undefined) throw new Error(`${what} is nothing`);
    const part = partOf(objects, servicesOfTarget(objects, target, inspection));
    const cluster = await explainedCluster(part, config, ["IPv4"], () => {});
    const search = find(cluster, target);
    if (search.kind === "nothing") return [];
    if (search.kind !== "ports") throw new Error(`${what} is not found`);
    const found = await explainPorts(cluster, search.keys);
    return found.map((one) => ({ text: explanationText(one), kernel: one.kernel }));
  };
  // The last one: a linear search passes all others first.
  const last = benchService(objects.services.length - 1);
  const service = `${last.namespace}/${last.name}`;
  const chains = (await explained(service)).flatMap(({ kernel }) => kernel).filter(({ kind }) => kind === "chain");
  const [first, others] = [chains[0]?.name ?? service, chains.at(-1)?.name ?? service];
  const names = { "a Service": service, "its address": last.clusterIP, "its first chain": first, "its last": others };
  for (const [what, name] of Object.entries({ ...names, ...NOT_THERE })) {
    const before = ownCpuMs();
    await explained(name);
    notes.add(what, ownCpuMs() - before, EXPLAIN_MS);
  }
  return notes.figures;
}
