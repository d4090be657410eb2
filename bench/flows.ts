/**
 * `npm run bench -- flows`: what `kube-proxy flows --watch` costs per connection and what it loses, and how soon
 * `kube-proxy flows SERVICE` answers over a table full of other connections.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { openConntrack } from "../src/kernel/conntrack/netlink-conntrack.ts";
import { KUBE_PROXY } from "../testkit/needs/built-program.ts";
import type { Bench } from "./driver.ts";
import { figuresOf } from "./memory.ts";
import { type Figures, Notes } from "./table.ts";

/** Each sends to every Service once before any of them sends again. */
const SOCKETS = 64;
const UDP_TIMEOUT = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout";
const TICK_MS = 10;
const LINE_FEED = 10;
const CONNTRACK_AS_IS = { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" };
/** Long enough to resolve a hundredth of a microsecond; the daemon idles as long beforehand. */
const UNWATCHED_SECONDS = 20;

interface FlowsTask {
  readonly rate: number;
  readonly seconds: number;
  readonly services: number;
  readonly entries: number;
  /** Another program to measure next to this one. */
  readonly against: string | undefined;
}

/** Of `flows --watch`. */
interface Watched {
  /** Begin events reported. */
  readonly told: number;
  /** Of the command, without its start, per connection that began and ended or is still tracked. */
  readonly cpuUs: number;
  /** Of the command, from its first line on. */
  readonly growthMb: number;
}

/** The missing part of what should be there, in percent. */
const missing = (value: number, of: number): number => 100 * Math.max(0, 1 - value / of);

export const bench: Bench = {
  name: "flows",
  about: `\`kube-proxy flows\` beside new connections of UDP, and over a large table. Needs root, nft, conntrack and npm run build.
Without seconds only the question is measured, as where the table may be larger: in a virtual machine.`,
  options: {
    rate: { value: "N", initial: "10000", help: "new connections a second" },
    seconds: { value: "N", initial: "60", quick: "5", help: "so long" },
    services: { value: "N", initial: "2000", help: "Services that they go to" },
    entries: {
      value: "N",
      initial: "500000",
      quick: "20000",
      help: "in the table, as far as this machine's limit allows",
    },
    against: { value: "FILE", help: "bin/kube-proxy of another checkout, which watches the same connections" },
    quick: { help: "smaller numbers" },
  },
  tasks(given) {
    const task: FlowsTask = {
      ...{ rate: given.whole("rate"), seconds: given.whole("seconds", 0) },
      ...{ services: given.whole("services"), entries: given.whole("entries"), against: given.optional("against") },
    };
    return { [`${task.rate} a second`]: [task] };
  },
  worker: measure,
};

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

/** `flows --watch` as a child process, and what it reported. */
class Watcher {
  readonly #child: ChildProcess;
  readonly pid: number;
  told = 0;

  constructor(program: string, file: string) {
    const args = ["flows", "--watch", "-o", "json", "-f", file];
    // Another process reads its output: a reader busy sending would make it buffer everything.
    const reader = spawn("grep", ["-o", "--line-buffered", '"ended":null'], { stdio: ["pipe", "pipe", "inherit"] });
    const child = spawn(program, args, { stdio: ["ignore", reader.stdin, "inherit"] });
    reader.stdin.destroy();
    if (child.pid === undefined) throw new Error("the command does not start");
    this.#child = child;
    this.pid = child.pid;
    reader.stdout.on("data", (bytes: Buffer) => {
      for (const byte of bytes) if (byte === LINE_FEED) this.told += 1;
    });
  }

  end(): void {
    this.#child.kill("SIGTERM");
  }
}

async function watched(task: FlowsTask, file: string, notes: Notes): Promise<void> {
  const watchers = [KUBE_PROXY, task.against].flatMap((program) =>
    program === undefined ? [] : new Watcher(program, file),
  );
  // Once they report this one, they are listening.
  while (watchers.some(({ told }) => told === 0)) {
    await send({ ...task, rate: 100, seconds: 1, services: 1 });
    await sleep(500);
  }
  await sleep(3000);
  const before = watchers.map(({ told, pid }) => ({ told, ...figuresOf(pid) }));
  const made = await send(task);
  await sleep(5000);
  const [own, other] = watchers.map(({ told, pid }, at): Watched => {
    const { cpuMs, rssMb } = figuresOf(pid);
    const then = before[at] ?? { told: 0, cpuMs: 0, rssMb: 0 };
    return { told: told - then.told, cpuUs: ((cpuMs - then.cpuMs) * 1000) / made, growthMb: rssMb - then.rssMb };
  });
  for (const watcher of watchers) watcher.end();
  notes.add("connections", made);
  if (own !== undefined) {
    notes.add("  not told, %", missing(own.told, made), 0.1);
    notes.add("processor time of the command, µs each", own.cpuUs, 10);
    notes.add("the command grew by, MB", own.growthMb, 30);
  }
  if (own === undefined || other === undefined) return;
  notes.add("the other: not told, %", missing(other.told, made));
  notes.add("  processor time, µs each", other.cpuUs);
  notes.add("  this one's, of it", own.cpuUs / other.cpuUs);
  notes.add("  grew by, MB", other.growthMb);
}

/** Nanoseconds on a processor of all threads of a process: a clock tick would be larger than what is measured. */
function threadTimes(pid: number): number {
  const tasks = readdirSync(`/proc/${pid}/task`);
  return tasks.reduce(
    (sum, one) => sum + Number(readFileSync(`/proc/${pid}/task/${one}/schedstat`, "utf8").split(" ")[0]),
    0,
  );
}

/** Microseconds of a daemon for each such connection while no `flows` runs, less what it uses without connections. */
async function unwatched(task: FlowsTask, folder: string, file: string): Promise<number> {
  const config = join(folder, "config.json");
  const meta = { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" };
  writeFileSync(config, JSON.stringify({ ...meta, mode: "nftables", conntrack: CONNTRACK_AS_IS }));
  const args = [`--config=${config}`, `--manifests=${file}`, "--hostname-override=bench", "--inspect-socket="];
  const child = spawn(KUBE_PROXY, args, { stdio: "ignore" });
  const { pid } = child;
  if (pid === undefined) throw new Error("the daemon does not start");
  try {
    // There is no Node, so it never reports itself healthy.
    const hasSynced = async (): Promise<boolean> => {
      const metrics = await fetch("http://127.0.0.1:10249/metrics")
        .then((answer) => answer.text())
        .catch(() => "");
      return /^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="IPv4"\} [1-9]/m.test(metrics);
    };
    while (!(await hasSynced())) await sleep(200);
    // It collects garbage after some idle time.
    await sleep(15_000);
    const seconds = Math.min(task.seconds, UNWATCHED_SECONDS);
    const now = () => ({ ns: threadTimes(pid), ms: performance.now() });
    const idle = now();
    await sleep(seconds * 1000);
    const busy = now();
    const made = await send({ ...task, seconds });
    const end = now();
    // If the sender is late, the daemon rests longer.
    const restNs = ((busy.ns - idle.ns) * (end.ms - busy.ms)) / (busy.ms - idle.ms);
    return (end.ns - busy.ns - restNs) / made / 1000;
  } finally {
    child.kill("SIGTERM");
    await once(child, "exit");
  }
}

/** Fills the table with connections to elsewhere. */
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

/** In this process's network namespace. */
async function measure(task: FlowsTask): Promise<Figures> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-flows-"));
  const notes = new Notes();
  try {
    const file = join(folder, "cluster.json");
    writeFileSync(file, manifests(task.services));
    prepare();
    if (task.seconds > 0) {
      // "Nothing", as far as a busy machine can show it: other programs cost an idle process as much.
      const unwatchedUs = await unwatched(task, folder, file);
      notes.add("processor time of a daemon without the command, µs each", unwatchedUs, 0.1);
      await watched(task, file, notes);
    }
    const entries = await fill(task.entries, folder);
    notes.add("entries in the table", entries);
    notes.add("  missing of those that were wanted, %", missing(entries, task.entries), 0);
    writeFileSync(UDP_TIMEOUT, "600");
    await send({ ...task, rate: 100, seconds: 1, services: 1 });
    const startMs = performance.now();
    const out = execFileSync(KUBE_PROXY, ["flows", "bench/s0", "-o", "json", "-f", file], { encoding: "utf8" });
    if (!out.includes("\n")) throw new Error("flows SERVICE lists none");
    notes.add("flows SERVICE, its start included", performance.now() - startMs, 2_000);
    return notes.figures;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
