/** `npm run bench -- NAME`: runs a bench; without a name, the iptables mode's. See docs/performance.md. */
import { writeSync } from "node:fs";
import { type Bench, runBench } from "./driver.ts";

const iptables = () => import("./iptables.ts");
const BENCHES: Readonly<Record<string, () => Promise<{ readonly bench: Bench }>>> = {
  against: () => import("./against.ts"),
  apiserver: () => import("./apiserver.ts"),
  nftables: () => import("./nftables.ts"),
  ipvs: () => import("./ipvs.ts"),
  functions: () => import("./event-functions.ts"),
  kernelspace: () => import("./kernelspace.ts"),
  trace: () => import("./trace.ts"),
  path: () => import("./path.ts"),
  ebpf: () => import("./ebpf.ts"),
  pods: () => import("./pods.ts"),
  userspace: () => import("./userspace.ts"),
  explain: () => import("./explain.ts"),
  prove: () => import("./prove.ts"),
  status: () => import("./status.ts"),
  hashes: () => import("./hashes.ts"),
  unanswered: () => import("./unanswered.ts"),
  "conntrack-counts": () => import("./conntrack-counts.ts"),
  flows: () => import("./flows.ts"),
  kinds: () => import("./kinds.ts"),
  limits: () => import("./limits.ts"),
  "api-storm": () => import("./api-storm.ts"),
};

try {
  const words = process.argv.slice(2).filter((word) => word !== "--");
  const [name = ""] = words;
  if (name === "--worker") {
    const { bench } = await (BENCHES[words[1] ?? ""] ?? iptables)();
    const figures = await bench.worker?.(JSON.parse(words[2] ?? "") as never); // as the bench has written it
    if (figures !== undefined) writeSync(1, `${JSON.stringify(figures)}\n`);
    process.exit();
  }
  const load = BENCHES[name];
  const { bench } = await (load ?? iptables)();
  process.exitCode = await runBench(bench, load === undefined ? words : words.slice(1));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
}
