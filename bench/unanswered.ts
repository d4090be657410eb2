/**
 * `npm run bench -- unanswered`: what the table that reports endpoints without an answer costs a new connection: without it, with it, and
 * while all endpoints are suspected. In turns, in one namespace.
 */
import {
  type ObservedEndpoints,
  openUnansweredObserver,
  type UnansweredObserver,
} from "../src/kernel/nftables/unanswered-table.ts";
import { joinHostPort } from "../src/net/ip.ts";
import { benchService, benchSlice, makeReachable } from "./cluster.ts";
import { askLoop, Rounds, SERVER_PORT, startLoop, targetsOf } from "./connections.ts";
import type { Bench } from "./driver.ts";
import { ownCpuMs } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import { type Figures, Notes } from "./table.ts";

interface Task {
  readonly services: number;
  readonly rounds: number;
}
const ENDPOINTS = 3;
const LOOKS = 200;

export const bench: Bench = {
  name: "unanswered",
  about: "What it costs a new connection that endpoints without an answer are reported, in nftables mode. Needs root.",
  parts: { connections: "with and without the table, and while all endpoints are suspected" },
  options: {
    quick: { help: "with few rounds" },
    services: { value: "N", initial: "1000", quick: "100", help: "with three endpoints each, all of them watched" },
    rounds: { value: "N", initial: "400", quick: "20", help: "of 100 connections each way" },
  },
  tasks: (given) => ({
    connections: [{ services: given.whole("services"), rounds: given.whole("rounds") } satisfies Task],
  }),
  worker: measure,
};

async function measure({ services, rounds }: Task): Promise<Figures> {
  makeReachable();
  const subject = new NftSubject(ENDPOINTS, "Flat");
  for (let index = 0; index < services; index += 1) {
    subject.state.onService({ kind: "add", object: benchService(index) });
    subject.state.onEndpointSlice({ kind: "add", object: benchSlice(index, ENDPOINTS) });
  }
  subject.state.applyChanges();
  await subject.operationsOf(() => subject.fullSync(), true);
  const addresses = Array.from({ length: services }, (_, index) => benchSlice(index, ENDPOINTS).endpoints).flat();
  const all = new Set(addresses.map(({ address }) => joinHostPort(address, SERVER_PORT)));
  await startLoop(["serve", String(SERVER_PORT)]);
  const client = await startLoop(["client"]);
  const targets = targetsOf("service", services, ENDPOINTS);
  let observer: UnansweredObserver | undefined;
  const ask = async (endpoints: ObservedEndpoints | undefined) => {
    if (endpoints === undefined) await observer?.close();
    observer = endpoints && (observer ?? (await openUnansweredObserver("IPv4", true)));
    await observer?.observe(endpoints ?? NOBODY);
    const task = { load: "connect", count: 10 * targets.length, targets } as const;
    // The first connections after a transaction are dearer.
    await askLoop(client, task);
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
  // Both ends are in one namespace: each packet passes both hooks, but only one of them where it is forwarded.
  for (const arm of ["watched", "suspected"]) {
    const { median, low, high } = found.difference(arm, "without", "cpuUs");
    notes.add(`  ${arm}, dearer, µs`, median);
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
