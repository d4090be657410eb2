/**
 * An API server with the cluster and a kube-proxy that follows it, both in the namespace of this process. Argument: a ProgramTask as JSON.
 * Writes a StartReport after the first sync. Then reads lines: `NUMBER ADDRESS` adds the Service with this number and endpoint, and is
 * answered with when that was, in nanoseconds of `process.hrtime`; `figures SECONDS`, with a ProgramReport when the program has come to rest,
 * its memory so much later.
 */
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { ApiDaemon } from "../test/apiserver/api-daemon.ts";
import { CONFIG_CONF } from "../test/apiserver/kubeadm-files.ts";
import { RESOURCE_TYPES } from "../test/apiserver/resource-types.ts";
import { TestApiServer } from "../test/apiserver/test-api-server.ts";
import { PROTOBUF_WIRE } from "../test/apiserver/wire-format.ts";
import {
  type ClusterSize,
  clusterObjects,
  nodeObject,
  type ProgramReport,
  type StartReport,
  serviceObjects,
} from "./connection-cluster.ts";
import { figuresOf } from "./memory.ts";

export interface ProgramTask extends ClusterSize {
  readonly address: string;
  readonly mode: string;
  /** What only this program knows. @default what the mode does without */
  readonly layout?: LayoutName;
  /** The absolute path of any kube-proxy. */
  readonly program: string;
  /** For the first sync. */
  readonly limitMs: number;
}

const METRICS = "http://127.0.0.1:10249/metrics";
/** Rest that ends a measurement, and the processor time in it that is still rest: kube-proxy syncs a second after a change. */
const REST_MS = 3_000;
const REST_CPU_MS = 60;

const { address, mode, layout, program, limitMs, ...size }: ProgramTask = JSON.parse(process.argv[2] ?? "{}");
const server = await TestApiServer.start();
const put = ({ service, slice }: ReturnType<typeof serviceObjects>): void => {
  server.put("services", service);
  server.put("endpointslices", slice);
};
server.put("nodes", nodeObject(address));
for (const objects of clusterObjects(size)) put(objects);
// It was started in a cluster that had these already, and has them at hand in both formats.
server.store.restart();
for (const plural of ["services", "endpointslices"] as const) {
  const { [plural]: type } = RESOURCE_TYPES;
  for (const version of server.store.objects(plural).values()) PROTOBUF_WIRE.event("ADDED", type, version);
}

/** The sum of a metric over its labels; undefined before there is one. Upstream gave `ip_family` to those of syncs in 1.34. */
async function metric(name: string): Promise<number | undefined> {
  const text = await fetch(METRICS).then(
    (answer) => answer.text(),
    () => "",
  );
  const values = text.matchAll(new RegExp(`^kubeproxy_${name}(?:\\{(?!ip_family="IPv6").*\\})? (\\S+)$`, "gm"));
  return Array.from(values, ([, value]) => Number(value)).reduce<number | undefined>(
    (sum, value) => (sum ?? 0) + value,
    undefined,
  );
}

const say = (report: StartReport | ProgramReport): void => void process.stdout.write(`${JSON.stringify(report)}\n`);
const layoutLine = layout === undefined ? "" : `\n  layout: ${layout}`;
const startMs = performance.now();
const daemon = new ApiDaemon({
  url: server.url,
  ca: server.authority.certificate,
  config: CONFIG_CONF.replace('mode: ""', `mode: ${mode}`).replace("nftables:", `nftables:${layoutLine}`),
  program: [program],
});
const hasEnded = (): boolean => daemon.child.exitCode !== null || daemon.child.signalCode !== null;
const cpuMs = (): number => {
  const figures = figuresOf(daemon.pid);
  return figures.cpuMs + figures.childrenCpuMs;
};

async function untilAtRest(): Promise<void> {
  for (let before = Number.NEGATIVE_INFINITY; cpuMs() - before > REST_CPU_MS; await sleep(REST_MS)) before = cpuMs();
}

async function figures(settleSeconds: number): Promise<ProgramReport> {
  await untilAtRest();
  const workMs = ((await metric("sync_proxy_rules_duration_seconds_sum")) ?? Number.NaN) * 1000;
  const used = { cpuMs: cpuMs(), workMs };
  await sleep(settleSeconds * 1000);
  const { rssMb, peakMb } = figuresOf(daemon.pid);
  return { ...used, rssMb, peakMb };
}

/** Why there was no first sync, in words. */
function failure(): string {
  const { exitCode, signalCode } = daemon.child;
  const what = hasEnded()
    ? `ended with ${signalCode ?? `status ${exitCode}`} before its first sync`
    : `had no first sync in ${limitMs / 1000} s: ${METRICS} has no kubeproxy_sync_proxy_rules_last_timestamp_seconds of IPv4`;
  const last = daemon.log.trimEnd().split("\n").slice(-5).join("\n");
  return `${program} ${what}; ${last === "" ? "it has logged nothing" : `its last lines:\n${last}`}`;
}

let hasSynced = false;
try {
  while (!hasSynced && !hasEnded() && performance.now() - startMs < limitMs) {
    await sleep(10);
    hasSynced = ((await metric("sync_proxy_rules_last_timestamp_seconds")) ?? 0) > 0;
  }
  say(hasSynced ? { firstSyncMs: performance.now() - startMs, cpuMs: cpuMs() } : { failure: failure() });
  for await (const line of createInterface({ input: process.stdin })) {
    const [number, endpoint = ""] = line.split(" ");
    if (number === "figures") {
      say(await figures(Number(endpoint)));
      continue;
    }
    const objects = serviceObjects(Number(number), [endpoint]);
    const startNs = process.hrtime.bigint();
    put(objects);
    process.stdout.write(`${startNs}\n`);
  }
} finally {
  await daemon.dispose();
  await server.close();
}
