/**
 * `npm run bench -- pods`: what pods of one node send each other over veth pairs, in ebpf mode: through Services or directly, with the
 * endpoint chosen at the socket or by rules. All arms in one namespace, in turns; what counts are ratios within one round.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { nftBackend } from "./backends.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { askLoop, type Figure, Rounds, SERVER_PORT, startLoop, targetsOf } from "./connections.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { EbpfSubject } from "./ebpf-subject.ts";
import { estimateText, judgeEstimate } from "./estimate.ts";
import { withCgroup, withNamespace } from "./namespace.ts";
import { LOADS, type Load, type LoopFigures, type Target } from "./socket-loop.ts";
import { table } from "./table.ts";
import { answerLines, type LineProcess, startWorker } from "./workers.ts";

const ENDPOINTS = 3;
const COUNTS: Readonly<Record<Load, number>> = { connect: 200, send: 2000, sendto: 2000, stream: 100 };

interface PodsTask {
  readonly services: number;
  /** Names of namespaces. */
  readonly client: string;
  readonly server: string;
  readonly cgroup: string;
}

interface Arm {
  readonly load: Load;
  /** Whether the client's sockets are in the programs' cgroup. */
  readonly isLed: boolean;
  readonly way: "direct" | "service";
}

const BASE = "direct, without programs";
const BYSTANDER = "direct, beside the programs";
const ARMS: Readonly<Record<string, Omit<Arm, "load">>> = {
  [BASE]: { isLed: false, way: "direct" },
  [BYSTANDER]: { isLed: true, way: "direct" },
  "to a service, at the socket": { isLed: true, way: "service" },
  "to a service, by rules": { isLed: false, way: "service" },
};
/** Issue 31's limit for a bystander's datagram, relative to the processor time of a direct one. */
const BYSTANDER_LIMIT = 1.02;

export const bench: Bench = {
  name: "pods",
  about: "What two pods of a node send each other costs in ebpf mode. Needs root and a cgroup2 file system.",
  options: {
    quick: { help: "few rounds" },
    services: { value: "N", initial: "10000", quick: "1000", help: "of the cluster" },
    rounds: { value: "N", initial: "200", quick: "5", help: "of each arm" },
    loads: { value: "NAME,…", initial: LOADS.join(","), help: "which" },
  },
  run: measure,
  worker: answerArms,
};

async function measure(given: Given): Promise<Outcome> {
  const loads = given.someOf("loads", LOADS);
  const rounds = new Rounds();
  await withPods(given.whole("services"), async (worker) => {
    const arms = loads.flatMap((load) =>
      Object.entries(ARMS).map(([name, arm]) => {
        return [`${load} ${name}`, () => worker.ask<LoopFigures>({ ...arm, load })] as const;
      }),
    );
    await rounds.take(Object.fromEntries(arms), given.whole("rounds"));
  });
  const ratio = (load: Load, name: string, figure: Figure) =>
    rounds.ratio(`${load} ${name}`, `${load} ${BASE}`, figure);
  for (const load of loads) {
    const rows = Object.keys(ARMS).map((name) => {
      const cells = (["cpuUs", "us"] as const).flatMap((figure) => [
        rounds.middle(`${load} ${name}`, figure).toFixed(2),
        estimateText(ratio(load, name, figure)),
      ]);
      return [name, ...cells, (1_000_000 / rounds.middle(`${load} ${name}`, "us")).toFixed(0)];
    });
    console.log(table([`${load}, µs`, "processor", "of direct", "by the clock", "of direct", "a second"], rows));
  }
  if (!loads.includes("sendto")) return {};
  const found = ratio("sendto", BYSTANDER, "cpuUs");
  return { verdicts: [judgeEstimate(`sendto, ${BYSTANDER}: processor time, of direct`, found, BYSTANDER_LIMIT)] };
}

/** The node, with a cluster in ebpf mode in which one pod is every endpoint: answers each line, an {@link Arm}, with LoopFigures. */
async function answerArms({ services, client, server, cgroup }: PodsTask): Promise<undefined> {
  await startLoop(["serve", String(SERVER_PORT)], server);
  await startLoop(["sink", String(SERVER_PORT)], server);
  const outside = await startLoop(["client"], client);
  writeFileSync(join(cgroup, "cgroup.procs"), `${process.pid}`);
  const inside = await startLoop(["client"], client);
  const subject = new EbpfSubject(ENDPOINTS, nftBackend("Flat"), cgroup);
  subject.load(services);
  // One UDP service, besides those of TCP.
  const name = "http";
  const udp = { ...benchService(services), ports: [{ name, protocol: "UDP" as const, port: 80, nodePort: 0 }] };
  const udpPorts = [{ name, protocol: "UDP" as const, port: SERVER_PORT }];
  subject.state.onService({ kind: "add", object: udp });
  subject.state.onEndpointSlice({ kind: "add", object: { ...benchSlice(services, ENDPOINTS), ports: udpPorts } });
  subject.state.applyChanges();
  await subject.fullSync();
  const { endpoints } = benchSlice(services, ENDPOINTS);
  await answerLines(async ({ load, isLed, way }: Arm) => {
    const udpTarget: Target = way === "service" ? [udp.clusterIP, 80] : [endpoints[0]?.address ?? "", SERVER_PORT];
    const isUdp = load === "send" || load === "sendto";
    const targets = isUdp ? [udpTarget] : targetsOf(way, services, ENDPOINTS, load === "stream" ? 1 : COUNTS.connect);
    return await askLoop(isLed ? inside : outside, { load, targets, count: COUNTS[load] });
  });
}

function withPods<T>(services: number, work: (worker: LineProcess) => Promise<T>): Promise<T> {
  return withNamespace((node) =>
    withNamespace(({ name: client }) =>
      withNamespace(({ name: server }) =>
        withCgroup(async (cgroup) => {
          connectPods(node.name, client, server);
          const worker = startWorker("pods", { services, client, server, cgroup } satisfies PodsTask, node);
          try {
            await worker.next();
            return await work(worker);
          } finally {
            worker.end();
          }
        }),
      ),
    ),
  );
}

/** A client pod, and one that has the address of every endpoint, each on a veth pair of the node. */
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
