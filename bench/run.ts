/** `npm run bench -- NAME`: runs a bench; without a name, that of the iptables mode. See docs/performance.md. */
import { type Bench, runBench } from "./driver.ts";

const BENCHES: Readonly<Record<string, () => Promise<{ readonly bench: Bench }>>> = {
  against: () => import("./against.ts"),
  start: () => import("./start.ts"),
  apiserver: () => import("./apiserver.ts"),
  nftables: () => import("./nftables.ts"),
  ipvs: () => import("./ipvs.ts"),
  cost: () => import("./change-cost.ts"),
  functions: () => import("./event-functions.ts"),
  kernelspace: () => import("./kernelspace.ts"),
  connection: () => import("./connection.ts"),
  trace: () => import("./trace.ts"),
  path: () => import("./path.ts"),
  ebpf: () => import("./ebpf.ts"),
  pods: () => import("./pods.ts"),
  userspace: () => import("./userspace.ts"),
  explain: () => import("./explain.ts"),
  prove: () => import("./prove.ts"),
  status: () => import("./status.ts"),
  flows: () => import("./flows.ts"),
  kinds: () => import("./change-kinds.ts"),
  limits: () => import("./limits.ts"),
  "api-storm": () => import("./api-storm.ts"),
};

try {
  const words = process.argv.slice(2).filter((word) => word !== "--");
  const [name = ""] = words;
  const load = BENCHES[name];
  const { bench } = load === undefined ? await import("./iptables.ts") : await load();
  process.exitCode = await runBench(bench, load === undefined ? words : words.slice(1));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
}
