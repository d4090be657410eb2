/**
 * The node of two pods, in a namespace of its own, with a cluster in ebpf mode of which one pod is every endpoint. Argument: a PodsTask as
 * JSON. Writes a line when the cluster is in the kernel, and answers each line of standard input, an {@link Arm}, with PodFigures.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { TABLE } from "../src/dataplane/nftables/names.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { type LineProcess, startLines } from "./bench-processes.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { EbpfSubject } from "./ebpf-subject.ts";
import { benchBackend } from "./nftables-subject.ts";
import type { Arm, Load, PodFigures, PodsTask, PodTask } from "./pods-figures.ts";

const ENDPOINTS = 3;
const SERVER_PORT = 8080;
const SCATTER = 7919;
const COUNTS: Readonly<Record<Load, number>> = { connect: 200, send: 2000, sendto: 2000, stream: 100 };
const LOOP = fileURLToPath(new URL("./pod-loop.ts", import.meta.url));

async function startIn(namespace: string, ...words: string[]): Promise<LineProcess> {
  const child = startLines("nsenter", [`--net=/run/netns/${namespace}`, process.execPath, LOOP, ...words]);
  await child.next();
  return child;
}

function nft(text: string): void {
  const { status, stderr } = spawnSync("nft", ["-f", "-"], { input: text, encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
}

const { services, client, server, cgroup, untracked }: PodsTask = JSON.parse(process.argv[2] ?? "{}");
await startIn(server, "serve", String(SERVER_PORT));
await startIn(server, "sink", String(SERVER_PORT));
const outside = await startIn(client, "client");
writeFileSync(join(cgroup, "cgroup.procs"), `${process.pid}`);
const inside = await startIn(client, "client");
const ruleset = openNetlinkRuleset();
const subject = new EbpfSubject(ENDPOINTS, benchBackend(ruleset.open({ family: "ip", table: TABLE }), "Flat"), cgroup);
subject.load(services);
// Of UDP one, beside those of TCP.
const udp = { ...benchService(services), ports: [{ name: "http", protocol: "UDP" as const, port: 80, nodePort: 0 }] };
const udpSlice = {
  ...benchSlice(services, ENDPOINTS),
  ports: [{ name: "http", protocol: "UDP" as const, port: SERVER_PORT }],
};
subject.state.onService({ kind: "add", object: udp });
subject.state.onEndpointSlice({ kind: "add", object: udpSlice });
subject.state.applyChanges();
await subject.fullSync();
nft(`table ip untracked { flags dormant; ${untracked}\n}`);

let isUntracked = false;
function choose(wanted: boolean): void {
  if (wanted === isUntracked) return;
  nft(`add table ip untracked${wanted ? "" : " { flags dormant; }"}`);
  isUntracked = wanted;
}

function targetsOf({ load, way }: Arm): PodTask["targets"] {
  const numbers =
    load === "connect"
      ? Array.from({ length: COUNTS.connect }, (_, n) => (n * SCATTER) % services)
      : [load === "stream" ? 0 : services];
  return numbers.map((n) =>
    way === "service"
      ? [benchService(n).clusterIP, 80]
      : [benchSlice(n, ENDPOINTS).endpoints[n % ENDPOINTS]?.address ?? "", SERVER_PORT],
  );
}

process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  const arm: Arm = JSON.parse(line);
  choose(arm.isUntracked);
  const task: PodTask = { load: arm.load, targets: targetsOf(arm), count: COUNTS[arm.load] };
  const figures = await (arm.isLed ? inside : outside).ask<PodFigures>(task);
  if (figures.failures > 0) throw new Error(`${figures.failures} failed: ${line}`);
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}
