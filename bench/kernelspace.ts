/**
 * `npm run bench -- kernelspace`: HNS calls and processor time of the kernelspace mode, on an HNS in memory, next to the calls of
 * kube-proxy's algorithm for the same changes (reference windows.md §1.3, §3.8). A call to the real HNS is an RPC of milliseconds.
 */
import { KernelspaceRig, LOOK_MS } from "../src/modes/kernelspace/testing/kernelspace-rig.ts";
import { port, remote, TestCluster } from "../testkit/dataplane/test-cluster.ts";
import type { Bench, Outcome } from "./driver.ts";
import { ownCpuMs } from "./memory.ts";
import { ms, table } from "./table.ts";

const ENDPOINTS = 5;

export const bench: Bench = {
  name: "kernelspace",
  about: "Calls to HNS and processor time of the kernelspace mode, on an HNS in memory, next to kube-proxy's calls.",
  needsRoot: false,
  options: { services: { value: "N", initial: "1000", help: "of the cluster" } },
  run: (given) => measure(given.whole("services")),
};

/** Counted calls of one step. */
interface KernelspaceStep {
  readonly name: string;
  readonly calls: number;
  /** Those of them that change something. */
  readonly writes: number;
  /** kube-proxy's calls; undefined for what it does not do. */
  readonly upstreamCalls: number | undefined;
  readonly cpuMs: number;
}

/** Measures a cluster of services with five endpoints each, all on other nodes, with cluster IPs only. */
export async function measureKernelspace(services: number): Promise<readonly KernelspaceStep[]> {
  const cluster = new TestCluster();
  const ip = (prefix: number, number: number) => `10.${prefix}.${number >> 8}.${number & 255}`;
  const declared = Array.from({ length: services }, (_, index) => port(`s${index}`, ip(96, index)));
  const endpointsOf = (index: number) =>
    Array.from({ length: ENDPOINTS }, (_, at) => remote(`10.${180 + at}.${index >> 8}.${index & 255}`));
  for (const [index, one] of declared.entries()) cluster.set(one, endpointsOf(index));
  const rig = new KernelspaceRig(cluster.driver);
  const upstream = upstreamCalls(services, services * ENDPOINTS);
  const steps: KernelspaceStep[] = [];
  const step = async (name: string, run: () => Promise<unknown>): Promise<void> => {
    rig.host.takeCalls();
    const before = { calls: rig.host.total, cpuMs: ownCpuMs() };
    await run();
    const cpuMs = ownCpuMs() - before.cpuMs;
    const calls = rig.host.total - before.calls;
    steps.push({ name, calls, writes: rig.host.takeWrites().length, upstreamCalls: upstream.get(name), cpuMs });
  };
  await step("first sync", () => rig.sync());
  const [first] = declared;
  if (first === undefined) throw new RangeError("there must be a service");
  cluster.setEndpoints(first, [...endpointsOf(0).slice(1), remote("10.200.0.1")]);
  await step("one endpoint replaced", () => rig.sync());
  await step("a sync without changes", () => rig.sync());
  rig.watch();
  await rig.clock.settle();
  await step("a look whether all is there", () => rig.clock.advance(LOOK_MS));
  await rig.restart();
  await step("restart", () => rig.sync());
  return steps;
}

/** By network name or ID: one enumeration, open, query and close. */
const LOOK = 4;
/** Open the network, create, query, close both. */
const CREATE_ENDPOINT = 5;
const CREATE_LOAD_BALANCER = 3;
const MODIFY = 4;

/** kube-proxy's calls on an L2Bridge with changes in place, counted from its steps. */
function upstreamCalls(loadBalancers: number, endpoints: number) {
  const start = 2 + LOOK + 1 + LOOK;
  const listings = (found: { endpoints: number; loadBalancers: number }) =>
    2 * LOOK + 2 + 3 * found.endpoints + 3 * found.loadBalancers;
  const all = { endpoints, loadBalancers };
  const create = loadBalancers * CREATE_LOAD_BALANCER;
  return new Map([
    [
      "first sync",
      start + listings({ endpoints: 0, loadBalancers: 0 }) + endpoints * (LOOK + CREATE_ENDPOINT) + create,
    ],
    ["one endpoint replaced", listings(all) + LOOK + CREATE_ENDPOINT + MODIFY + LOOK + 1],
    ["a sync without changes", listings(all)],
    ["restart", start + 4 * loadBalancers + listings({ endpoints, loadBalancers: 0 }) + create],
  ]);
}

/**
 * Duration of a call, [derived] from reports of how long a start with 2,000 cluster IPs and 5,000 remote endpoints takes (kubernetes
 * #109124): 51,000 calls in one minute on Windows Server 2022, and in 22 minutes on 2019, both with the fixes of that time.
 */
const REPORTED_MS = { "Server 2022": 1.2, "Server 2019": 26 } as const;

const waiting = (calls: number | undefined, callMs: number): string =>
  calls === undefined ? "–" : calls === 0 ? "0" : secondsText((calls * callMs) / 1000);

const secondsText = (seconds: number): string =>
  seconds < 1
    ? `${Math.round(seconds * 1000)} ms`
    : seconds < 90
      ? `${Math.round(seconds)} s`
      : `${Math.round(seconds / 60)} min`;

async function measure(services: number): Promise<Outcome> {
  const steps = await measureKernelspace(services);
  const kinds = Object.entries(REPORTED_MS);
  const rows = steps.map(({ name, calls, writes, upstreamCalls, cpuMs }) => [
    name,
    String(calls),
    String(writes),
    upstreamCalls === undefined ? "–" : String(upstreamCalls),
    ...kinds.map(([, callMs]) => `${waiting(calls, callMs)} / ${waiting(upstreamCalls, callMs)}`),
    ms(cpuMs),
  ]);
  const head = ["", "calls", "writes", "kube-proxy's", ...kinds.map(([name]) => `time on ${name}`), "CPU ms"];
  process.stdout.write(`${services} services × ${ENDPOINTS} endpoints\n\n`);
  process.stdout.write(`${table(head, rows)}\n`);
  return { figures: { steps } };
}
