/**
 * `npm run bench -- unanswered`: what the table that reports endpoints without an answer costs a new connection: without it, with it, and
 * while all endpoints are suspected. In turns. Clients, the node and endpoints have namespaces of their own, with links between them, and
 * the thread that connects carries each packet through all three: its processor time is the whole way's, there and back.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import {
  type ObservedEndpoints,
  openUnansweredObserver,
  type UnansweredObserver,
} from "../src/kernel/nftables/unanswered-table.ts";
import { joinHostPort } from "../src/net/ip.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { askLoop, Rounds, SERVER_PORT, startLoop, targetsOf } from "./connections.ts";
import type { Bench } from "./driver.ts";
import { ownCpuMs } from "./memory.ts";
import { type Namespace, withNamespace } from "./namespace.ts";
import { NftSubject } from "./nftables-subject.ts";
import { type Figures, Notes } from "./table.ts";

interface Task {
  readonly client: keyof typeof PARTS;
  readonly services: number;
  readonly rounds: number;
}
const ENDPOINTS = 3;
const LOOKS = 200;
const CONNECTIONS = 1_000;
/** Of the first connections after a transaction, which are dearer. */
const FIRST_CONNECTIONS = 200;
/** One percent of a processor at 10,000 connections a second (issue 49 B 10). */
const MOST_US = 1;
const PARTS = {
  pods: "connections of pods, which the node forwards: with and without the table, and while all endpoints are suspected",
  processes: "the same for processes of the node",
};

export const bench: Bench = {
  name: "unanswered",
  about: "What it costs a new connection that endpoints without an answer are reported, in nftables mode. Needs root.",
  parts: PARTS,
  options: {
    quick: { help: "with few rounds" },
    services: { value: "N", initial: "1000", quick: "100", help: "with three endpoints each, all of them watched" },
    rounds: { value: "N", initial: "400", quick: "20", help: "of 1,000 connections each way" },
  },
  tasks(given) {
    const task = (client: Task["client"]): readonly Task[] =>
      given.wants(client) ? [{ client, services: given.whole("services"), rounds: given.whole("rounds") }] : [];
    return { pods: task("pods"), processes: task("processes") };
  },
  worker: (task: Task) => withNamespace((pods) => withNamespace((endpoints) => measure(task, { pods, endpoints }))),
};

/** This process's namespace is the node. */
function link(pods: Namespace, endpoints: Namespace): void {
  const input = [
    "link set lo up",
    ...[pods, endpoints].flatMap(({ name }, at) => [
      `link add link${at} type veth peer name eth0 netns ${name}`,
      `address add 192.168.${at}.1/24 dev link${at}`,
      `link set link${at} up`,
    ]),
  ];
  execFileSync("ip", ["-batch", "-"], { input: input.join("\n") });
  for (const [at, { name }] of [pods, endpoints].entries()) {
    const own = [`address add 192.168.${at}.2/24 dev eth0`, "link set eth0 up"];
    const routes = [`route add default via 192.168.${at}.1`, "route add local 10.128.0.0/9 dev lo"];
    execFileSync("ip", ["-n", name, "-batch", "-"], { input: [...own, ...routes].join("\n") });
  }
  const routes = ["10.128.0.0/9", "10.96.0.0/12"].map((prefix) => `route add ${prefix} via 192.168.1.2`);
  execFileSync("ip", ["-batch", "-"], { input: routes.join("\n") });
  writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
}

async function measure(
  { client: from, services, rounds }: Task,
  { pods, endpoints }: Readonly<Record<"pods" | "endpoints", Namespace>>,
): Promise<Figures> {
  link(pods, endpoints);
  const subject = new NftSubject(ENDPOINTS, "Flat");
  for (let index = 0; index < services; index += 1) {
    subject.state.onService({ kind: "add", object: benchService(index) });
    subject.state.onEndpointSlice({ kind: "add", object: benchSlice(index, ENDPOINTS) });
  }
  subject.state.applyChanges();
  await subject.operationsOf(() => subject.fullSync(), true);
  const addresses = Array.from({ length: services }, (_, index) => benchSlice(index, ENDPOINTS).endpoints).flat();
  const all = new Set(addresses.map(({ address }) => joinHostPort(address, SERVER_PORT)));
  await startLoop(["serve", String(SERVER_PORT)], endpoints.name);
  const client = await startLoop(["client"], from === "pods" ? pods.name : undefined);
  const targets = targetsOf("service", services, ENDPOINTS);
  let observer: UnansweredObserver | undefined;
  const ask = async (endpoints: ObservedEndpoints | undefined) => {
    if (endpoints === undefined) await observer?.close();
    observer = endpoints && (observer ?? (await openUnansweredObserver("IPv4", true)));
    await observer?.observe(endpoints ?? NOBODY);
    const task = { load: "connect", count: CONNECTIONS, targets } as const;
    await askLoop(client, { ...task, count: FIRST_CONNECTIONS });
    return await askLoop(client, task);
  };
  const found = new Rounds();
  const watched = { watched: all, suspects: new Set<string>() };
  const suspected = { watched: all, suspects: all };
  await found.take(
    { without: () => ask(undefined), watched: () => ask(watched), suspected: () => ask(suspected) },
    rounds,
  );
  const notes = new Notes();
  notes.add("processor time of a connection, without, µs", found.middle("without", "cpuUs"));
  for (const arm of ["watched", "suspected"]) {
    const { median, low, high } = found.difference(arm, "without", "cpuUs");
    notes.add(`  ${arm}, dearer, µs`, median, arm === "watched" ? MOST_US : undefined);
    notes.add(`    ${arm}, with 95 %, µs`, `${low.toFixed(2)} to ${high.toFixed(2)}`);
  }
  await observer?.close();
  observer = await openUnansweredObserver("IPv4", true);
  for (const [what, endpoints] of [
    ["watched", watched],
    ["suspected", suspected],
  ] as const) {
    await observer.observe(endpoints);
    const beforeMs = ownCpuMs();
    for (let look = 0; look < LOOKS; look += 1) await observer.read();
    notes.add(`a look, all ${what}, processor time, ms`, (ownCpuMs() - beforeMs) / LOOKS);
  }
  await observer.close();
  return notes.figures;
}

const NOBODY: ObservedEndpoints = { watched: new Set(), suspects: new Set() };
