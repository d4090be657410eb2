/** One measurement in a fresh namespace, see flows.ts. Argument: a FlowsTask as JSON. */
import { execFileSync, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openConntrack } from "../src/kernel/conntrack/netlink-conntrack.ts";
import type { FlowsFigures, FlowsTask } from "./flows.ts";

const PROGRAM = fileURLToPath(new URL("../bin/kube-proxy", import.meta.url));
/** Each sends to every Service once before any does again. */
const SOCKETS = 64;
const UDP_TIMEOUT = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout";
const TICK_MS = 10;
/** USER_HZ, which has never been anything else. */
const TICKS_PER_SECOND = 100;

const numberIn = (path: string): number => Number(readFileSync(path, "utf8"));

/** Addresses of the Services: 10.96.0.0/16 from the second on. */
const addressOf = (index: number): string => `10.96.${(index >> 8) + 1}.${index & 255}`;

function manifests(services: number): string {
  const items = Array.from({ length: services }, (_, index) => {
    const metadata = { name: `s${index}`, namespace: "bench" };
    const ports = [{ name: "p", port: 53, protocol: "UDP" }];
    return [
      { apiVersion: "v1", kind: "Service", metadata, spec: { clusterIP: addressOf(index), ports } },
      {
        ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
        metadata: { ...metadata, labels: { "kubernetes.io/service-name": metadata.name } },
        ports: [{ name: "p", port: 5353, protocol: "UDP" }],
        endpoints: [{ addresses: ["10.180.0.11"], conditions: { ready: true } }],
      },
    ];
  });
  return JSON.stringify({ apiVersion: "v1", kind: "List", items: items.flat() });
}

/** New flows only: what is sent arrives nowhere, and the kernel forgets it within seconds. */
function prepare(): void {
  const ip = ["link set lo up", "address add 10.180.0.9/32 dev lo", "route add 10.96.0.0/16 dev lo src 10.180.0.9"];
  execFileSync("ip", ["-batch", "-"], { input: ip.concat("route add 10.180.0.11 dev lo").join("\n") });
  execFileSync("nft", ["-f", "-"], {
    input: `table ip t {
      chain dropped { type filter hook prerouting priority -400; udp dport 5353 drop; }
      chain out { type nat hook output priority -100; ip daddr 10.96.0.0/16 udp dport 53 dnat to 10.180.0.11:5353; }
    }`,
  });
  writeFileSync(UDP_TIMEOUT, "2");
}

async function send({ rate, seconds, services }: FlowsTask): Promise<number> {
  const sockets = Array.from({ length: SOCKETS }, () => createSocket("udp4"));
  for (const socket of sockets) await once(socket.bind(0, "10.180.0.9"), "listening");
  const startMs = performance.now();
  const all = rate * seconds;
  let sent = 0;
  while (sent < all) {
    const due = Math.min(all, Math.floor(((performance.now() - startMs) / 1000) * rate));
    for (; sent < due; sent += 1) {
      sockets[Math.floor(sent / services) % SOCKETS]?.send("x", 53, addressOf(sent % services));
    }
    await sleep(TICK_MS);
  }
  for (const socket of sockets) socket.close();
  return sent;
}

/** Of a running process. */
function usageOf(pid: number): { readonly cpuMs: number; readonly megabytes: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  const resident = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return {
    cpuMs: ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1000,
    megabytes: Number(resident) / 1024,
  };
}

async function watched(task: FlowsTask, file: string) {
  const child = spawn(PROGRAM, ["flows", "--watch", "-o", "json", "-f", file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error("the command does not start");
  let told = 0;
  const count = (text: string): void => {
    for (let at = text.indexOf('"ended":null'); at >= 0; at = text.indexOf('"ended":null', at + 1)) told += 1;
  };
  let rest = "";
  child.stdout.setEncoding("latin1").on("data", (text: string) => {
    const whole = rest + text;
    const end = whole.lastIndexOf("\n") + 1;
    count(whole.slice(0, end));
    rest = whole.slice(end);
  });
  // It listens when it tells of this one.
  while (told === 0) {
    await send({ ...task, rate: 100, seconds: 1, services: 1 });
    await sleep(500);
  }
  await sleep(3000);
  const before = { told, ...usageOf(pid) };
  const made = await send(task);
  await sleep(5000);
  const after = usageOf(pid);
  child.kill("SIGTERM");
  return {
    ...{ made, told: told - before.told, growthMegabytes: after.megabytes - before.megabytes },
    cpuMicroseconds: ((after.cpuMs - before.cpuMs) * 1000) / made,
  };
}

/** Fills the table with connections that go elsewhere. */
async function fill(entries: number, folder: string): Promise<number> {
  const most = numberIn("/proc/sys/net/netfilter/nf_conntrack_max") - 10_000;
  const lines = Array.from({ length: Math.min(entries, most) }, (_, n) => {
    const client = `10.${3 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`;
    return `-I -p tcp -t 600 --state ESTABLISHED -u SEEN_REPLY,ASSURED -s ${client} -d 10.97.0.10 --sport 4000 --dport 80 --dst-nat 10.180.0.11:8080`;
  });
  writeFileSync(join(folder, "entries"), lines.join("\n"));
  execFileSync("conntrack", ["-R", join(folder, "entries")], { stdio: "ignore" });
  await using table = openConntrack();
  return (await table.statistics()).entries;
}

const task: FlowsTask = JSON.parse(process.argv[2] ?? "{}");
const folder = mkdtempSync(join(tmpdir(), "kpts-flows-"));
try {
  const file = join(folder, "cluster.json");
  writeFileSync(file, manifests(task.services));
  prepare();
  const figures = await watched(task, file);
  const entries = await fill(task.entries, folder);
  writeFileSync(UDP_TIMEOUT, "600");
  await send({ ...task, rate: 100, seconds: 1, services: 1 });
  const startMs = performance.now();
  const out = execFileSync(PROGRAM, ["flows", "bench/s0", "-o", "json", "-f", file], { encoding: "utf8" });
  const result: FlowsFigures = {
    ...figures,
    ...{ entries, answerMs: performance.now() - startMs, answered: out.split("\n").length - 1 },
  };
  writeSync(1, JSON.stringify(result));
} finally {
  rmSync(folder, { recursive: true });
}
