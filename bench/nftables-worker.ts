/** One size of `npm run bench -- nftables`, in this process's network namespace. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { LostRules } from "../src/contract/backend.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { encodeTransaction } from "../src/kernel/nftables/netlink-transaction.ts";
import { LAYOUTS } from "../src/kernel/nftables/netlink-values.ts";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { NftBatch } from "../src/kernel/nftables/wire/batch.ts";
import { openNftables } from "../src/kernel/nftables/wire/nftables-client.ts";
import type { ServicePort } from "../src/model/service-port.ts";
import { SHARED_SETS } from "../src/modes/nftables/compatible/plan-static.ts";
import { CHAINS, SETS, servicePortChains, TABLE } from "../src/modes/nftables/names.ts";
import { openTable } from "./backends.ts";
import { measureBurst } from "./burst.ts";
import { longestTurn, withLatency } from "./latency.ts";
import { cpuMsOf, memoryNow, ownCpuMs, resetPeak, settledMemory, toolsCpuMs } from "./memory.ts";
import { flushRuleset, listRuleset, nftScript, runNft, timeUpstreamListing } from "./nft-program.ts";
import { type NftablesTask, ONE, OWN } from "./nftables.ts";
import { NftSubject } from "./nftables-subject.ts";
import { type Figures, median, Notes, type Spread, spread, timed } from "./table.ts";

/** Announcements may come late. */
const ANNOUNCED_MS = 300;
/** A stream begins with code that the engine has not compiled yet. Daemons run for weeks, so this part is reported separately. */
const FIRST_SECONDS = 10;
const HEALTH_EVERY_MS = 2;
const AT_ONCE = 100;
/** Each is a hundred changes in one sync. */
const ROUNDS = 10;
const WARM_UP = 20;
/** From here on, a listing takes many seconds. */
const LARGE = 10_000;

/** Upper limits for the flat layout (issues 12 and 31), by number of services. */
const FLAT = {
  changeMs: 0.5,
  loadMs: { 30000: 4_000, 100000: 12_000 } as Readonly<Record<number, number>>,
  loadOfSent: 1.3,
  residentMb: { 30000: 250 } as Readonly<Record<number, number>>,
  burstP50Ms: 5,
  burstP99Ms: 50,
  burstChangeUs: 150,
} as const;
/** And for some figures of the compatible one (issue 4), at this many services. */
const REFERENCE = 10_000;
const COMPATIBLE = { changeMs: 10, ofNft: 0.01, healingMs: 100, ofNftLoad: 1 } as const;
const HEALTH_MS = 50;

export async function measureNftables(task: NftablesTask): Promise<Figures> {
  const { layout, parts, endpointsEach } = task;
  const notes = new Notes();
  const subject = new NftSubject(endpointsEach, layout);
  const load = await measureLoad(subject, task, notes);
  const one = await measureWatched(subject, task, notes);
  if (parts.includes("healing")) await measureHealing(subject, task.trials, notes);
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-nft-"));
  const script = join(folder, "script.nft");
  try {
    if (parts.includes("upstream")) await measureUpstream(subject, task, script, one, notes);
    await subject.close();
    if (!parts.includes("load")) return notes.figures;
    writeFileSync(script, listRuleset());
    const sentMs = await timeBatchesOfLoad(task);
    const isLarge = layout === "Flat" && task.services >= LARGE / 2;
    notes.add("initial load's batches only sent", sentMs);
    notes.add("initial load, of its batches only sent", load / sentMs, isLarge ? FLAT.loadOfSent : undefined);
    const nftMs = layout === "Flat" ? undefined : await runNft(script, task.limitMs);
    notes.add("initial load by nft -f", nftMs);
    if (nftMs !== undefined) notes.add("initial load, of that by nft -f", load / nftMs, COMPATIBLE.ofNftLoad);
    return notes.figures;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** @returns milliseconds from an empty namespace to the committed table. */
async function measureLoad(subject: NftSubject, { layout, services }: NftablesTask, notes: Notes): Promise<number> {
  subject.load(services);
  const { rssMb: modelMb } = await settledMemory();
  resetPeak();
  const server = createServer((_request, response) => response.end("ok"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // listening on TCP
  const asked = { port, path: "/healthz", pauseMs: HEALTH_EVERY_MS };
  let turnMs = 0;
  const [loadMs, health] = await withLatency(asked, () =>
    timed(async () => {
      turnMs = await longestTurn(() => subject.fullSync());
    }),
  );
  server.closeAllConnections();
  server.close();
  const { peakMb } = memoryNow();
  const { rssMb: settledMb } = await settledMemory();
  const isFlat = layout === "Flat";
  notes.add("initial load", loadMs, isFlat ? FLAT.loadMs[services] : undefined);
  notes.add("  slowest health request during the load", health.worst, HEALTH_MS);
  // Excludes waiting for a processor.
  notes.add("  longest turn of the event loop, processor time", turnMs);
  notes.add("resident MB before", modelMb);
  notes.add("  at its peak", peakMb);
  notes.add("resident MB afterwards", settledMb, isFlat ? FLAT.residentMb[services] : undefined);
  const { transactions } = subject;
  subject.restart();
  notes.add("restart with nothing changed", await timed(() => subject.fullSync()));
  notes.add("restart with nothing changed: transactions", subject.transactions - transactions, 0);
  // Excludes what the previous backend leaves: a daemon has only one.
  await settledMemory();
  return loadMs;
}

/**
 * During a load the next batch is planned and encoded while the kernel works on one. So the batches are taken from a load and sent again to
 * the kernel as it was before, with nothing beside them. @returns milliseconds from sending to the kernel's answer, of all together.
 */
async function timeBatchesOfLoad({ services, endpointsEach, layout }: NftablesTask): Promise<number> {
  flushRuleset();
  const subject = new NftSubject(endpointsEach, layout);
  subject.load(services);
  const transactions = await subject.operationsOf(() => subject.fullSync(), true);
  await subject.close();
  flushRuleset();
  const raw = new RawBatches();
  const batches: NftBatch[] = [];
  // The kernel frees deleted objects later, in a thread of its own. Meanwhile, everything is encoded.
  for (const operations of transactions) batches.push(await raw.encode(operations, true));
  let sentMs = 0;
  for (const batch of batches) sentMs += await raw.send(batch);
  await raw.close();
  flushRuleset();
  return sentMs;
}

/** Measurements while the table is watched, as the daemon watches it. @returns a one-endpoint change, if that is measured. */
async function measureWatched(subject: NftSubject, task: NftablesTask, notes: Notes): Promise<Spread | undefined> {
  const { layout, parts, burstSeconds, burstRate } = task;
  const isFlat = layout === "Flat";
  // The backend sees the floor's batches as another program's. In the flat layout they touch sets that all services
  // share, so this would measure the repair: there, watching starts later.
  const measured = async (isNow: boolean) =>
    parts.includes("changes") && isNow ? await measureChanges(subject, task, notes) : undefined;
  const unwatched = await measured(isFlat);
  let losses = 0;
  const stopWatching = await subject.watch(() => {
    losses += 1;
  });
  const watched = await measured(!isFlat);
  await sleep(ANNOUNCED_MS);
  // Up to here some batches did not come from the subject.
  losses = 0;
  if (parts.includes("burst")) {
    const before = await measureBurst(subject, burstRate, FIRST_SECONDS);
    const burst = await measureBurst(subject, burstRate, burstSeconds);
    const flat = isFlat ? FLAT : undefined;
    notes.add("changes at the rate, latency", burst.latency, flat?.burstP50Ms);
    notes.add("changes at the rate, p99", burst.latency.p99, flat?.burstP99Ms);
    notes.add("  changes in a sync, mean", burst.changesInSync);
    notes.add("  processor time, part of a core", burst.cpuShare);
    notes.add("changes at the rate, processor time of each, µs", burst.cpuUs, flat?.burstChangeUs);
    notes.add("  and of the bench's own timer, not counted, µs", burst.timerUs);
    notes.add("  of a change in the 10 s before, while the engine compiles, µs", before.cpuUs);
  }
  await sleep(ANNOUNCED_MS);
  if (losses > 0) throw new Error("our own commits were taken for those of another program");
  await stopWatching();
  return watched ?? unwatched;
}

/** Batches as bytes, prepared and then sent over a plain socket in this thread, with nothing around them. */
class RawBatches {
  readonly #client = openNftables();

  /** @param isNew nothing in the table is from another process: anonymous sets have the short names of a first load. */
  async encode(operations: Iterable<NftOperation>, isNew = false): Promise<NftBatch> {
    const { batch } = await encodeTransaction({ layout: LAYOUTS.ip, table: TABLE, isNew }, operations);
    batch.finish();
    return batch;
  }

  /** @returns milliseconds from sending to the kernel's answer. Rejects if the kernel does. */
  async send(batch: NftBatch): Promise<number> {
    const startMs = performance.now();
    const result = await this.#client.commit(batch, { isSlow: false });
    if (!result.committed) throw new Error(result.errors[0]?.message ?? "a batch was refused");
    return performance.now() - startMs;
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}

/** Changes and their commits and, in turns with them, so that a machine that gets busier affects both, the least that the kernel needs. */
async function measureChanges(subject: NftSubject, task: NftablesTask, notes: Notes): Promise<Spread> {
  const { layout, services, changes } = task;
  const whole: number[] = [];
  const own: number[] = [];
  let [cpuMs, floorCpuMs] = [0, 0];
  const replace = (n: number) => () => subject.replaceEndpoint(subject.scattered(n));
  const changed = (make: () => void): Promise<number> =>
    timed(async () => {
      make();
      await subject.syncChanges();
    });
  const one = async (n: number): Promise<void> => {
    const { kernelMs } = subject;
    let wholeMs = 0;
    cpuMs += await cpuMsOf(async () => {
      wholeMs = await changed(replace(n));
    });
    whole.push(wholeMs);
    own.push(wholeMs - (subject.kernelMs - kernelMs));
  };
  for (let n = 0; n < WARM_UP; n += 1) await changed(replace(n));
  const raw = new RawBatches();
  const floor: number[] = [];
  for (let n = 0; n < changes; n += 1) {
    // The second one finds the kernel's data in the processor's caches.
    const isOursFirst = n % 2 === 0;
    if (isOursFirst) await one(2 * n);
    const [operations = []] = await subject.operationsOf(async () => void (await changed(replace(2 * n + 1))), false);
    const batch = await raw.encode(operations);
    const before = ownCpuMs();
    floor.push(await raw.send(batch));
    floorCpuMs += ownCpuMs() - before;
    if (!isOursFirst) await one(2 * n);
  }
  await raw.close();
  const hundred: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const make = () => {
      for (let n = 0; n < Math.min(AT_ONCE, services); n += 1) replace(round * AT_ONCE + n)();
    };
    hundred.push(await changed(make));
  }
  const added: number[] = [];
  for (let n = 0; n < changes; n += 1) added.push(await changed(() => subject.setService(services + n, "add")));
  for (let n = 0; n < changes; n += 1) subject.setService(services + n, "delete");
  await subject.syncChanges();
  const [found, isFlat] = [spread(whole), layout === "Flat"];
  const wanted = services === REFERENCE ? COMPATIBLE.changeMs : undefined;
  notes.add(ONE, found, isFlat ? FLAT.changeMs : wanted);
  notes.add(OWN, spread(own));
  notes.add("  the floor: the same batch only sent", spread(floor));
  notes.add("  processor time, mean", cpuMs / changes);
  notes.add("  of the floor", floorCpuMs / changes);
  notes.add("a service added", spread(added), isFlat ? FLAT.changeMs : undefined);
  notes.add("100 services changed in one sync", spread(hundred));
  return found;
}

const serviceIPs = SHARED_SETS.find(({ name }) => name === SETS.serviceIPs);

/** What another program does, by name. */
const DAMAGES: Readonly<Record<string, (port: ServicePort) => readonly NftOperation[]>> = {
  "rules of a service deleted": ({ name }) => [{ kind: "flush-chain", chain: servicePortChains(name).cluster }],
  "a foreign rule in a service's chain": ({ name }) => [
    {
      kind: "add-rule",
      chain: servicePortChains(name).cluster,
      rule: { statements: [{ kind: "verdict", verdict: { kind: "drop" } }] },
    },
  ],
  "an element deleted": ({ clusterIP, port }) =>
    serviceIPs === undefined ? [] : [{ kind: "delete-elements", set: serviceIPs, keys: [[clusterIP, "tcp", port]] }],
  "rules of a fixed chain deleted": () => [{ kind: "flush-chain", chain: CHAINS.services }],
  "a base chain deleted": () => [
    { kind: "flush-chain", chain: "nat-output" },
    { kind: "delete-chain", chain: "nat-output" },
  ],
};

/** From another program's commit to the commit of the repair. Nothing else may watch the subject. */
async function measureHealing(subject: NftSubject, trials: number, notes: Notes): Promise<void> {
  // A subject that was watched before would check everything first.
  subject.restart();
  await subject.fullSync();
  const others = openNetlinkRuleset();
  const foreign = openTable(others);
  let repair = Promise.withResolvers<void>();
  const stopWatching = await subject.watch((lost?: LostRules) => {
    if (lost === undefined) repair.reject(new Error("the damage was not understood"));
    else subject.sync(false, lost.ports).then(repair.resolve, repair.reject);
  });
  const ports = [...subject.state.services.values()];
  try {
    for (const [kind, of] of Object.entries(DAMAGES)) {
      const samples: number[] = [];
      for (let trial = 0; trial < trials; trial += 1) {
        const port = ports[subject.scattered(trial)];
        if (port === undefined) throw new Error("there is no such service");
        repair = Promise.withResolvers();
        await foreign.transact(of(port));
        samples.push(await timed(() => repair.promise));
      }
      notes.add(`healing, ${kind}`, spread(samples), COMPATIBLE.healingMs);
    }
  } finally {
    await stopWatching();
    await others.close();
  }
}

/**
 * Changes, each repeated by `nft -f` with what upstream would send, and upstream's listing at the start of every sync.
 *
 * @param file for the input of nft. @param ours a one-endpoint change.
 */
async function measureUpstream(
  subject: NftSubject,
  { services, nftChanges, limitMs }: NftablesTask,
  file: string,
  ours: Spread | undefined,
  notes: Notes,
): Promise<void> {
  const repeated = async (
    what: string,
    rounds: number,
    change: (round: number) => void,
  ): Promise<number | undefined> => {
    const samples: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      change(round);
      const transactions = await subject.operationsOf(() => subject.syncChanges(), true);
      writeFileSync(file, nftScript(TABLE, transactions.at(-1) ?? []));
      const took = await runNft(file, limitMs);
      if (took === undefined) {
        notes.add(`nft -f, ${what}`, `not in ${limitMs / 1000} s`);
        return undefined;
      }
      samples.push(took);
    }
    notes.add(`nft -f, ${what}`, spread(samples));
    return median(samples);
  };
  const replaceMany = (count: number) => (round: number) => {
    for (let n = 0; n < count; n += 1) subject.replaceEndpoint(subject.scattered(round * count + n));
  };
  const wanted = services === REFERENCE ? COMPATIBLE.ofNft : undefined;
  const startCpuMs = toolsCpuMs();
  const listings = Array.from({ length: services > LARGE ? 1 : 3 }, () => timeUpstreamListing(TABLE));
  const listedCpuMs = toolsCpuMs();
  const oneMs = await repeated("one endpoint changed", nftChanges, replaceMany(1));
  const oneCpuMs = (toolsCpuMs() - listedCpuMs) / nftChanges;
  const listing = spread(listings);
  if (oneMs !== undefined && ours !== undefined)
    notes.add("one endpoint changed, of that by nft -f", ours.p50 / oneMs, wanted);
  notes.add("  processor time of nft, mean", oneCpuMs);
  notes.add("  the listing that upstream makes before it", listing);
  if (oneMs !== undefined && ours !== undefined)
    notes.add("one endpoint changed, of nft -f and the listing", ours.p50 / (oneMs + listing.p50), wanted);
  notes.add("  processor time of the listing", (listedCpuMs - startCpuMs) / listings.length);
  await repeated("100 services", Math.min(2, nftChanges), replaceMany(Math.min(AT_ONCE, services)));
  await repeated("a service added", nftChanges, (round) => subject.setService(2 * services + round, "add"));
}
