/** `npm run attack`: everything that once stopped the program, done to a fresh build, with figures. Needs root. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import type { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";
import { measureOutage, OUTAGES } from "../apiserver/outage.ts";
import { faultNode } from "../kernel/faults/fault-node.ts";
import type { Probe } from "./attackers.ts";
import {
  type AttackedMode,
  askForDebugger,
  type DoorOutcome,
  FLOODS,
  floodFromServer,
  floodLog,
  hangUpOnPage,
  holdIdleConnections,
  pipelineUnread,
  victim,
} from "./stop-it.ts";

const say = (line: string) => void process.stdout.write(`${line}\n`);
let failures = 0;

function health({ count, failed, medianMs, longestMs }: Probe): string {
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  return `/healthz ${count} times, ${failed} failed, median ${ms(medianMs)}, longest ${ms(longestMs)}`;
}

async function attempt(title: string, work: () => Promise<string>): Promise<void> {
  try {
    say(`✓ ${title}: ${await work()}`);
  } catch (error) {
    failures += 1;
    say(`✗ ${title}: ${error instanceof Error ? error.message : error}`);
  }
}

async function inNode<T>(attack: (node: NetworkNamespace) => Promise<T>): Promise<T> {
  const afterwards: (() => unknown)[] = [];
  try {
    return await attack(await faultNode({ after: (work) => void afterwards.push(work) }));
  } finally {
    for (const work of afterwards) await work();
  }
}

async function on<T>(mode: AttackedMode, openFiles: number | undefined, attack: (daemon: ProxyDaemon) => Promise<T>) {
  return await inNode(async (node) => {
    const daemon = await victim(node, mode, openFiles);
    try {
      return await attack(daemon);
    } finally {
      await daemon.dispose();
    }
  });
}

for (const mode of ["iptables", "nftables", "userspace"] as const) {
  for (const openFiles of [undefined, 200]) {
    await attempt(`idle connections, ${mode}, ${openFiles ?? "many"} descriptors`, async () => {
      const { probe, changeMs } = await on(mode, openFiles, (daemon) => holdIdleConnections(daemon, mode));
      if (probe.failed > 0) throw new Error(health(probe));
      return `a change took ${changeMs.toFixed(0)} ms; ${health(probe)}`;
    });
  }
}
await attempt("pipelined requests", async () => {
  const { probe, grownMb } = await on("nftables", undefined, (daemon) => pipelineUnread(daemon, 10_000));
  const text = `${grownMb} MB more; ${health(probe)}`;
  if (probe.failed > 0 || probe.longestMs > 50 || grownMb > 40) throw new Error(text);
  return text;
});
const doors = ({ probe, grownMb, endMs, lines }: DoorOutcome): string =>
  `${grownMb} MB more, ended in ${endMs.toFixed(0)} ms, ${lines} lines of the log; ${health(probe)}`;

await attempt("questions to the page, and hanging up", async () => {
  const outcome = await inNode((node) => hangUpOnPage(node, 10_000));
  const text = `answered ${outcome.askedMs.toFixed(0)} ms after that; ${doors(outcome)}`;
  if (outcome.probe.failed > 0 || outcome.askedMs > 2_000 || outcome.endMs > 2_000 || outcome.grownMb > 90) {
    throw new Error(text);
  }
  return text;
});
for (const what of FLOODS) {
  await attempt(`an API server that never stops: ${what}`, async () => {
    const outcome = await inNode((node) => floodFromServer(node, what, 8_000));
    const { failed, longestMs } = outcome.probe;
    // What it is told of as new it keeps, as upstream does.
    const mostMb = what === "ADDED" ? Number.POSITIVE_INFINITY : 150;
    const isBad = failed > 0 || longestMs > 500 || outcome.endMs > 2_000 || outcome.grownMb > mostMb;
    if (isBad || outcome.lines > 300) throw new Error(doors(outcome));
    return doors(outcome);
  });
}
await attempt("two Services of 5,000 ports claim the same addresses, six times", async () => {
  const { lines, bytes } = await inNode((node) => floodLog(node, 6));
  const text = `${lines} lines of the log, ${(bytes / 1000).toFixed(1)} kB`;
  if (lines > 100 || bytes > 40_000) throw new Error(text);
  return text;
});
for (const [name, { ending = "<error>" }] of Object.entries(OUTAGES)) {
  const isRefused = name.startsWith("refused");
  await attempt(`an API server that is away: ${name}`, async () => {
    const { grownMb, cpuMs, descriptors, endings, usages } = await measureOutage(
      name,
      isRefused ? [100, 3_000, 10_000, 40_000] : [100, 3_000],
    );
    const [first = 0, second = 0, third, last = 0] = usages.map(({ residentMb }) => residentMb);
    const lateMb = third === undefined ? 0 : last - third;
    const text = `${grownMb.toFixed(0)} MB more, ${lateMb.toFixed(0)} MB from 10,000 attempts on, ${cpuMs.toFixed(2)} ms of processor time each`;
    const isCheap = cpuMs <= (isRefused ? 2 : 12) && descriptors <= 12;
    if (second - first > 60 || lateMb > 5 || !isCheap || endings.join() !== ending) throw new Error(text);
    return text;
  });
}
await attempt("SIGUSR1", async () => {
  const { isOpen, isAlive } = await on("nftables", undefined, askForDebugger);
  if (isOpen || !isAlive) throw new Error(isOpen ? "a debugger answers" : "the daemon is gone");
  return "no debugger, and the daemon answers";
});
/** Attacks that are tests. */
const TESTS = [
  ["tools that cannot be started", "src/kernel/process-descriptors.test.ts", "bystanders live, and tools start again"],
  [
    "UDP sockets of one process against a pending answer, ebpf",
    "src/modes/ebpf/socket-balancer/unusual-sockets.test.ts",
    "it comes from the address that was asked",
  ],
  [
    "daemons and --cleanup in another network namespace beside a live one, ebpf",
    "test/kernel/faults/ebpf-beside.test.ts",
    "its programs stay, and those of an ended process go wherever they are",
  ],
  [
    "connected UDP sockets of two Services while pods change owners, ebpf",
    "src/modes/ebpf/connected-storm.test.ts",
    "each has its record and reaches its own Service",
  ],
  [
    "UDP sockets that close while a foreign hand has detached the programs, ebpf",
    "src/modes/ebpf/closed-sockets.test.ts",
    "their records are found a minute later, and those of open ones stay",
  ],
  [
    "a node that never stops answering --all-nodes",
    "test/cli/on-nodes.test.ts",
    "it is named, and the other nodes' answers stay",
  ],
  [
    "chains of our table get other names, ours are emptied, others' stand beside them",
    "test/kernel/faults/nftables-renamed.test.ts",
    "all is in force again at once and after a start, and what stays is named",
  ],
  [
    "idle connections of one process to a node port on loopback",
    "src/modes/nftables/localhost-relay.test.ts",
    "it has a share, and other users are served",
  ],
  [
    "secrets in logs, mistaken kubeconfigs and archives",
    "test/cli/secrets-left-out.test.ts",
    "none is in a message or an archive",
  ],
  [
    "an object of 40 MB, and answers that are garbage",
    "test/apiserver/source-bad-answers.test.ts",
    "it is read, nothing else waits, and nothing is deleted for garbage",
  ],
  [
    "a nested cluster that uses the same addresses, and processes that make network namespaces",
    "test/kernel/flows/led-namespaces.test.ts",
    "only the node and its pods are led at the socket",
  ],
  [
    "a Service of 4,000 ports",
    "test/kernel/faults/nftables-many-ports.test.ts",
    "another Service is in the kernel before it",
  ],
] as const;

for (const [title, path, outcome] of TESTS) {
  await attempt(title, async () => {
    const file = fileURLToPath(new URL(`../../${path}`, import.meta.url));
    const { status, stdout } = spawnSync(process.execPath, ["--test", file], { encoding: "utf8" });
    if (status !== 0) throw new Error(stdout);
    return outcome;
  });
}
process.exitCode = failures === 0 ? 0 : 1;
