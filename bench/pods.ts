/**
 * `npm run bench -- pods`: what pods of one node send each other over veth pairs, in ebpf mode: through Services and not, led at the
 * socket and by rules, tracked and not. All arms in one namespace, in turns; what counts are ratios in one round.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import { startLines } from "./bench-processes.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { endCgroup } from "./ebpf.ts";
import { estimate, estimateText, judgeEstimate, permutations } from "./estimate.ts";
import { atExit, withNamespace } from "./namespace.ts";
import { type Arm, LOADS, type Load, type PodFigures, type PodsTask } from "./pods-figures.ts";
import { median, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./pods-worker.ts", import.meta.url));
const PODS = "10.128.0.0/9";
const FIRST_ROUNDS = 5;

/**
 * What no setting of this program makes (docs/ebpf.md says why): connections between pods are not tracked. What rules have translated must be,
 * both ways, and an answer does not show that; so its source port is moved to a range of its own. Answers to addresses of the node, too.
 */
const BETWEEN = `ip saddr ${PODS} ip daddr ${PODS}`;
const rules = (before: string, after: string): string =>
  ["tcp", "udp"].map((protocol) => `${before} meta l4proto ${protocol} ${BETWEEN} ${after}`).join("; ");
const UNTRACKED = `
  chain raw { type filter hook prerouting priority raw; ${rules("", "th sport < 61000 th dport < 61000 fib daddr type != local notrack")}; }
  chain nat { type nat hook postrouting priority 110; ${rules("ct status dnat", "snat ip to ip saddr:61000-65535")}; }`;

type NamedArm = Omit<Arm, "load"> & { readonly name: string };

const BASE: NamedArm = { name: "direct, without programs", isLed: false, way: "direct", isUntracked: false };
const BYSTANDER: NamedArm = { name: "direct, beside the programs", isLed: true, way: "direct", isUntracked: false };
const UNTRACKED_SERVICE: NamedArm = {
  ...{ name: "to a service, at the socket, not tracked", isLed: true, way: "service", isUntracked: true },
};
const ARMS: readonly NamedArm[] = [
  BASE,
  BYSTANDER,
  { name: "to a service, at the socket", isLed: true, way: "service", isUntracked: false },
  { name: "to a service, by rules", isLed: false, way: "service", isUntracked: false },
  { name: "direct, not tracked", isLed: false, way: "direct", isUntracked: true },
  UNTRACKED_SERVICE,
];
/** What issue 31 wants of the arms, of the processor time of a direct one. */
const LIMITS: readonly (readonly [load: Load, arm: NamedArm, limit: number])[] = [
  ["sendto", BYSTANDER, 1.02],
  ["connect", UNTRACKED_SERVICE, 0.9],
  ["send", UNTRACKED_SERVICE, 0.92],
];

export const bench: Bench = {
  name: "pods",
  about: "What two pods of a node send each other costs in ebpf mode. Needs root and a cgroup2 file system.",
  options: {
    services: { value: "N", initial: "10000", help: "of the cluster" },
    rounds: { value: "N", initial: "200", help: "of each arm" },
    untracked: { help: "also connections that are not tracked, which no setting of this program makes" },
    loads: { value: "NAME,…", initial: LOADS.join(","), help: LOADS.join(", ") },
  },
  run: measure,
};

async function measure(given: Given): Promise<Outcome> {
  const rounds = given.whole("rounds");
  const loads = LOADS.filter((load) => given.list("loads").includes(load));
  const wanted = ARMS.filter(({ isUntracked }) => !isUntracked || given.isOn("untracked"));
  const arms = loads.flatMap((load) => wanted.map((arm): Arm & NamedArm => ({ ...arm, load })));
  const keyOf = (load: Load, { name }: NamedArm) => `${load} ${name}`;
  const inOrder = permutations();
  const taken: Record<string, PodFigures>[] = [];
  await withPods(given.whole("services"), async (ask) => {
    for (let round = -FIRST_ROUNDS; round < rounds; round++) {
      const figures: Record<string, PodFigures> = {};
      // The table is switched once in a round: that takes longer than what is measured.
      const isUntrackedFirst = round % 2 === 0;
      const order = inOrder(arms.length).flatMap((index) => arms[index] ?? []);
      const isFirst = (arm: Arm): boolean => arm.isUntracked === isUntrackedFirst;
      for (const arm of [...order.filter(isFirst), ...order.filter((arm) => !isFirst(arm))]) {
        figures[keyOf(arm.load, arm)] = await ask(arm);
      }
      if (round >= 0) taken.push(figures);
    }
  });
  const of = (load: Load, arm: NamedArm, figure: keyof PodFigures) =>
    taken.map((round) => round[keyOf(load, arm)]?.[figure] ?? 0);
  const ratio = (load: Load, arm: NamedArm, figure: keyof PodFigures) => {
    const base = of(load, BASE, figure);
    return estimate(of(load, arm, figure).map((value, round) => value / (base[round] ?? 1)));
  };
  for (const load of loads) {
    const rows = wanted.map((arm) => [
      arm.name,
      ...(["cpuUs", "us"] as const).flatMap((figure) => [
        median(of(load, arm, figure)).toFixed(2),
        estimateText(ratio(load, arm, figure)),
      ]),
      (1_000_000 / median(of(load, arm, "us"))).toFixed(0),
    ]);
    console.log(table([`${load}, µs`, "processor", "of direct", "by the clock", "of direct", "a second"], rows));
  }
  return {
    verdicts: LIMITS.filter(([load, arm]) => loads.includes(load) && wanted.includes(arm)).map(([load, arm, limit]) =>
      judgeEstimate(`${load}, ${arm.name}: processor time, of direct`, ratio(load, arm, "cpuUs"), limit),
    ),
  };
}

async function withPods<T>(services: number, work: (ask: (arm: Arm) => Promise<PodFigures>) => Promise<T>): Promise<T> {
  const mount = cgroupMount();
  if (mount === undefined) throw new Error("no cgroup2 file system is mounted");
  return await withNamespace((node) =>
    withNamespace((client) =>
      withNamespace(async (server) => {
        connectPods(node.name, client.name, server.name);
        const cgroup = join(mount, `kpts-bench-pods-${process.pid}`);
        mkdirSync(cgroup);
        const remove = atExit(() => endCgroup(cgroup));
        try {
          const task: PodsTask = { services, client: client.name, server: server.name, cgroup, untracked: UNTRACKED };
          const words = [`--net=/run/netns/${node.name}`, process.execPath, WORKER, JSON.stringify(task)];
          const worker = startLines("nsenter", words);
          try {
            await worker.next();
            return await work((arm) => worker.ask<PodFigures>(arm));
          } finally {
            worker.end();
          }
        } finally {
          remove();
        }
      }),
    ),
  );
}

/** One pod that asks, and one that has the address of every endpoint, each at a veth pair of the node. */
function connectPods(node: string, client: string, server: string): void {
  const batch = (name: string, lines: readonly string[]): void =>
    void execFileSync("ip", ["-n", name, "-batch", "-"], { input: lines.join("\n") });
  const ends = [
    [client, "veth-client", "10.255.1.1", "10.255.1.2"],
    [server, "veth-server", "10.255.2.1", "10.255.2.2"],
  ] as const;
  for (const [pod, link, gateway, address] of ends) {
    batch(node, [
      `link add ${link} type veth peer name eth0 netns ${pod}`,
      `link set ${link} up`,
      `address add ${gateway}/32 dev ${link}`,
      `route add ${address} dev ${link}`,
    ]);
    batch(pod, [
      "link set eth0 up",
      `address add ${address}/32 dev eth0`,
      `route add ${gateway} dev eth0`,
      `route add default via ${gateway}`,
    ]);
  }
  batch(server, ["route add local 10.128.0.0/10 dev lo"]);
  batch(node, ["route add 10.128.0.0/10 via 10.255.2.2 dev veth-server"]);
  execFileSync("nsenter", [`--net=/run/netns/${node}`, "sysctl", "-qw", "net.ipv4.ip_forward=1"]);
}
