/**
 * One size, in a process of its own inside a fresh namespace. Argument: a NftablesTask as JSON. Standard output:
 * NftablesFigures as one line of JSON.
 */
import { mkdtempSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { TABLE } from "../src/backends/nftables/names.ts";
import { memoryNow, resetPeak, settledMemory } from "./memory.ts";
import { flushRuleset, listRuleset, nftScript, runNft, timeUpstreamListing } from "./nft-program.ts";
import type { Burst, NftablesFigures, NftablesTask, Spread } from "./nftables-figures.ts";
import { NftSubject } from "./nftables-subject.ts";
import { quantile } from "./statistics.ts";

const EVENTS_PER_SECOND = 1000;
const AT_ONCE = 100;
/** Rounds of a hundred changes in one sync. */
const ROUNDS = 10;

function spread(samples: readonly number[]): Spread {
  return { count: samples.length, p50: quantile(samples, 0.5), p99: quantile(samples, 0.99) };
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

/** Each change with what of its time was not the kernel's. */
interface Samples {
  readonly wholeMs: number[];
  readonly ownMs: number[];
}

/** Makes changes in the model and commits them, some at once. */
async function changes(
  subject: NftSubject,
  rounds: number,
  atOnce: number,
  change: (n: number) => void,
): Promise<Samples> {
  const samples: Samples = { wholeMs: [], ownMs: [] };
  for (let round = 0; round < rounds; round += 1) {
    const { kernelMs } = subject;
    const wholeMs = await timed(async () => {
      for (let n = 0; n < atOnce; n += 1) change(round * atOnce + n);
      await subject.syncChanges();
    });
    samples.wholeMs.push(wholeMs);
    samples.ownMs.push(wholeMs - (subject.kernelMs - kernelMs));
  }
  return samples;
}

/** Events come when they are due, whatever the sync is doing; each is done when the sync that took it is committed. */
async function burst(subject: NftSubject, services: number, seconds: number): Promise<Burst> {
  const events = seconds * EVENTS_PER_SECOND;
  const latencies: number[] = [];
  const startMs = performance.now();
  const cpu = process.cpuUsage();
  let made = 0;
  let syncs = 0;
  while (latencies.length < events) {
    const due = Math.min(events, Math.floor(((performance.now() - startMs) / 1000) * EVENTS_PER_SECOND));
    if (due === made) {
      await sleep(1);
      continue;
    }
    const first = made;
    for (; made < due; made += 1) subject.replaceEndpoint((made * 7919) % services);
    await subject.syncChanges();
    syncs += 1;
    const nowMs = performance.now();
    for (let event = first; event < due; event += 1) {
      latencies.push(nowMs - (startMs + (event * 1000) / EVENTS_PER_SECOND));
    }
  }
  const { user, system } = process.cpuUsage(cpu);
  const wallMs = performance.now() - startMs;
  return { events, latency: spread(latencies), syncs, cpuShare: (user + system) / 1000 / wallMs };
}

/** Makes a change, then does once more with `nft -f` what the last transaction did. */
async function repeatWithNft(
  subject: NftSubject,
  task: NftablesTask,
  file: string,
  rounds: number,
  change: (round: number) => Promise<void>,
): Promise<Spread | undefined> {
  const samples: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    await change(round);
    writeFileSync(file, nftScript(TABLE, subject.lastOperations));
    const ms = await runNft(file, task.limitMs);
    if (ms === undefined) break;
    samples.push(ms);
  }
  return samples.length === 0 ? undefined : spread(samples);
}

/** All measurements with the `nft` program; the kernel differs from the model afterwards. */
async function measureNft(subject: NftSubject, task: NftablesTask, folder: string, replace: (n: number) => void) {
  const script = join(folder, "change.nft");
  const { services, nftChanges } = task;
  const atOnce = Math.min(AT_ONCE, services);
  const replaceMany = (count: number) => async (round: number) => {
    for (let n = 0; n < count; n += 1) replace(round * count + n);
    await subject.syncChanges();
  };
  const nftListing = spread(Array.from({ length: Math.min(3, nftChanges) }, () => timeUpstreamListing(TABLE)));
  const nftOneChange = await repeatWithNft(subject, task, script, nftChanges, replaceMany(1));
  const nftHundredChanges = await repeatWithNft(subject, task, script, Math.min(2, nftChanges), replaceMany(atOnce));
  const nftServiceAdded = await repeatWithNft(subject, task, script, nftChanges, async (round) => {
    const index = 2 * services + round;
    subject.setService(index, "add");
    await subject.syncChanges();
    const operations = subject.lastOperations;
    subject.setService(index, "delete");
    await subject.syncChanges();
    subject.lastOperations = operations;
  });
  await subject.close();
  const whole = join(folder, "ruleset.nft");
  writeFileSync(whole, listRuleset());
  flushRuleset();
  return {
    nftListing,
    nftOneChange,
    nftHundredChanges,
    nftServiceAdded,
    nftInitialLoadMs: await runNft(whole, task.limitMs),
  };
}

async function measure(task: NftablesTask, folder: string): Promise<NftablesFigures> {
  const { services } = task;
  const subject = new NftSubject(task.endpointsEach);
  subject.load(services);
  const { rssMb: modelMb } = await settledMemory();
  let losses = 0;
  let isWatchOver = false;
  subject.watch(() => {
    if (!isWatchOver) losses += 1;
  });
  resetPeak();
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const initialLoadMs = await timed(() => subject.fullSync(false));
  delay.disable();
  const { peakMb } = memoryNow();
  const { rssMb: settledMb } = await settledMemory();
  const replace = (n: number) => subject.replaceEndpoint((n * 7919) % services);
  await changes(subject, 20, 1, replace);
  const one = await changes(subject, task.changes, 1, replace);
  const hundred = await changes(subject, ROUNDS, Math.min(AT_ONCE, services), replace);
  const added = await changes(subject, task.changes, 1, (n) => subject.setService(services + n, "add"));
  const burstFigures = await burst(subject, services, task.burstSeconds);
  // Announcements may come late.
  await sleep(300);
  if (losses > 0) throw new Error("our own commits were taken for somebody else's");
  isWatchOver = true;
  const { transactions } = subject;
  const restartMs = await timed(() => subject.fullSync(true));
  const restartWrites = subject.transactions - transactions;
  const nft = await measureNft(subject, task, folder, replace);
  return {
    services,
    initialLoadMs,
    initialDelayMs: delay.max / 1e6,
    peakMb,
    settledMb,
    modelMb,
    oneChange: spread(one.wholeMs),
    oneChangeOwn: spread(one.ownMs),
    hundredChanges: spread(hundred.wholeMs),
    serviceAdded: spread(added.wholeMs),
    burst: burstFigures,
    restartMs,
    restartWrites,
    ...nft,
  };
}

const task: NftablesTask = JSON.parse(process.argv[2] ?? "{}");
const folder = mkdtempSync(join(tmpdir(), "kpts-bench-nft-"));
try {
  writeSync(1, `${JSON.stringify(await measure(task, folder))}\n`);
} finally {
  rmSync(folder, { recursive: true });
}
