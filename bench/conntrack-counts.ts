/**
 * `npm run bench -- conntrack-counts`: what a connection costs more while the kernel counts its packets (`nf_conntrack_acct`) and keeps
 * its start (`nf_conntrack_timestamp`), and the memory of an entry. In turns, in one namespace.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { benchService, benchSlice, makeReachable } from "./cluster.ts";
import { askLoop, Rounds, SERVER_PORT, startLoop, targetsOf } from "./connections.ts";
import type { Bench } from "./driver.ts";
import { NftSubject } from "./nftables-subject.ts";
import { type Figures, median, Notes } from "./table.ts";

interface Task {
  readonly rounds: number;
  readonly entries: number;
}
const SERVICES = 10;
const ENDPOINTS = 3;
const FILLS = 5;
/** Both settings, `acct` before `timestamp`. */
const ARMS = { off: [0, 0], acct: [1, 0], timestamp: [0, 1], both: [1, 1] } as const;
type Arm = keyof typeof ARMS;

export const bench: Bench = {
  name: "conntrack-counts",
  about: "What it costs that the kernel counts packets of connections and keeps their start. Needs root and conntrack.",
  parts: { connections: "with each setting, with both and without" },
  options: {
    quick: { help: "with few rounds" },
    rounds: { value: "N", initial: "60", quick: "10", help: "of 1,000 connections each way" },
    entries: { value: "N", initial: "4000", quick: "2000", help: "whose memory is compared" },
  },
  tasks: (given) => ({
    connections: [{ rounds: given.whole("rounds"), entries: given.whole("entries") } satisfies Task],
  }),
  worker: measure,
};

/** For connections that begin from now on, in this network namespace. */
function set(arm: Arm): void {
  for (const [at, name] of ["acct", "timestamp"].entries())
    writeFileSync(`/proc/sys/net/netfilter/nf_conntrack_${name}`, String(ARMS[arm][at]));
}

async function measure({ rounds, entries }: Task): Promise<Figures> {
  makeReachable();
  const subject = new NftSubject(ENDPOINTS, "Flat");
  for (let index = 0; index < SERVICES; index += 1) {
    subject.state.onService({ kind: "add", object: benchService(index) });
    subject.state.onEndpointSlice({ kind: "add", object: benchSlice(index, ENDPOINTS) });
  }
  subject.state.applyChanges();
  await subject.operationsOf(() => subject.fullSync(), true);
  await startLoop(["serve", String(SERVER_PORT)]);
  const client = await startLoop(["client"]);
  const targets = targetsOf("service", SERVICES, ENDPOINTS);
  const ask = async (arm: Arm) => {
    set(arm);
    return await askLoop(client, { load: "connect", count: 10 * targets.length, targets });
  };
  const found = new Rounds();
  await found.take(
    { off: () => ask("off"), acct: () => ask("acct"), timestamp: () => ask("timestamp"), both: () => ask("both") },
    rounds,
  );
  const notes = new Notes();
  notes.add("processor time of a connection, both off, µs", found.middle("off", "cpuUs"));
  for (const arm of ["acct", "timestamp", "both"] as const) {
    const { median, low, high } = found.difference(arm, "off", "cpuUs");
    notes.add(`  ${arm}, dearer, µs`, median);
    notes.add(`    ${arm}, with 95 %, µs`, `${low.toFixed(2)} to ${high.toFixed(2)}`);
  }
  const taken: Record<Arm, number[]> = { off: [], acct: [], timestamp: [], both: [] };
  const folder = mkdtempSync(join(tmpdir(), "kpts-counts-"));
  for (let fill = 0; fill < FILLS; fill += 1)
    for (const arm of Object.keys(ARMS) as Arm[])
      taken[arm].push(await entryBytes(arm, entries, join(folder, "entries")));
  rmSync(folder, { recursive: true });
  for (const arm of Object.keys(ARMS) as Arm[]) notes.add(`memory of an entry, ${arm}, bytes`, median(taken[arm]));
  return notes.figures;
}

/** Of all of the kernel's small objects: an entry and its extensions, among what others take meanwhile. */
async function entryBytes(arm: Arm, entries: number, file: string): Promise<number> {
  execFileSync("conntrack", ["-F"], { stdio: "ignore" });
  await sleep(500);
  set(arm);
  const lines = Array.from({ length: entries }, (_, n) => {
    const client = `10.${3 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`;
    return `-I -p tcp -t 600 --state ESTABLISHED -u SEEN_REPLY,ASSURED -s ${client} -d 10.97.0.10 --sport 4000 --dport 80`;
  });
  writeFileSync(file, lines.join("\n"));
  const before = slabBytes();
  execFileSync("conntrack", ["-R", file], { stdio: "ignore" });
  return (slabBytes() - before) / entries;
}

function slabBytes(): number {
  const rows = readFileSync("/proc/slabinfo", "utf8").split("\n");
  return rows
    .filter((row) => /^(nf_conntrack|kmalloc-(64|96|128|192|256)) /.test(row))
    .reduce((sum, row) => {
      const [, active = 0, , size = 0] = row.split(/\s+/).map(Number);
      return sum + active * size;
    }, 0);
}
