/**
 * `npm run bench -- explain`: what `kube-proxy explain` takes beyond loading for one Service and for each name that it has in the
 * kernel, among many. Processor time of the main thread, so that a busy machine counts little. Needs no root.
 */
import { parseArgs } from "node:util";
import { modeNamed, type ProxyMode } from "../src/dataplane/registry.ts";
import { explainedCluster, explainPorts } from "../src/explain/explained-cluster.ts";
import { find } from "../src/explain/find.ts";
import { partOf, servicesOfTarget } from "../src/explain/part-of-cluster.ts";
import { parseTarget } from "../src/explain/target.ts";
import { explanationText } from "../src/explain/text.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { benchObjects, benchService } from "./cluster.ts";
import { ownCpuMs } from "./processor-time.ts";
import { ms, table } from "./table.ts";

/** Wanted, beyond loading. */
const EXPLAIN_MS = 300;
const MODES: readonly ProxyMode[] = ["nftables", "iptables", "ipvs", "userspace"];

/** A node port, an address and a name that nothing has. */
const NOT_THERE = ["29999", "10.255.255.254:80", "no-such-chain"];

const USAGE = `Usage: npm run bench -- explain [options]

What kube-proxy explain takes beyond loading, processor time.

  --services N         how many there are (default 10000)
  --endpoints N        endpoints of each (default 5)
  --check              exit with status 1 when a target is missed
  --help               this text
`;

/** Runs the bench. @returns the exit status. */
export async function benchExplain(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      services: { type: "string", default: "10000" },
      endpoints: { type: "string", default: "5" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const objects = benchObjects(Number(values.services), Number(values.endpoints));
  const rows: string[][] = [];
  let worst = 0;
  for (const mode of MODES) {
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
      return (await explainPorts(cluster, search.keys)).map((one) => ({
        text: explanationText(one),
        kernel: one.kernel,
      }));
    };
    // The last one: what is looked for in turn has all others before it.
    const last = benchService(objects.services.length - 1);
    const service = `${last.namespace}/${last.name}`;
    const chains = (await explained(service)).flatMap(({ kernel }) => kernel).filter(({ kind }) => kind === "chain");
    const names = [service, last.clusterIP, chains[0]?.name ?? service, chains.at(-1)?.name ?? service];
    for (const what of new Set([...names, ...NOT_THERE])) {
      const before = ownCpuMs();
      await explained(what);
      const cpuMs = ownCpuMs() - before;
      worst = Math.max(worst, cpuMs);
      rows.push([mode, what, ms(cpuMs)]);
    }
  }
  console.log(table(["mode", "explain", "ms"], rows));
  const passed = worst <= EXPLAIN_MS;
  console.log(`${passed ? "PASS" : "FAIL"}  explain takes ${ms(worst)} ms at most, ${EXPLAIN_MS} ms wanted`);
  return values.check && !passed ? 1 : 0;
}
