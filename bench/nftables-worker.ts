/** One size of `npm run bench -- nftables`, in this process's network namespace. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SHARED_SETS } from "../src/dataplane/nftables/compatible/plan-static.ts";
import { CHAINS, SETS, servicePortChains, TABLE } from "../src/dataplane/nftables/names.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import { encodeTransaction } from "../src/kernel/nftables/netlink-transaction.ts";
import { LAYOUTS } from "../src/kernel/nftables/netlink-values.ts";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { NftBatch } from "../src/kernel/nftables/wire/batch.ts";
import { openNftables } from "../src/kernel/nftables/wire/nftables-client.ts";
import type { ServicePort } from "../src/model/service-port.ts";
import type { LostRules } from "../src/sync/backend.ts";
import { openTable } from "./backends.ts";
import { measureBurst } from "./burst.ts";
import { longestTurn, withLatency } from "./latency.ts";
import { cpuMsOf, memoryNow, ownCpuMs, resetPeak, settledMemory, toolsCpuMs } from "./memory.ts";
import { flushRuleset, listRuleset, nftScript, runNft, timeUpstreamListing } from "./nft-program.ts";
import type { ChangeFigures, LoadFigures, NftablesFigures, NftablesTask, UpstreamFigures } from "./nftables.ts";
import { NftSubject } from "./nftables-subject.ts";
import { type Spread, spread, timed } from "./table.ts";

/** Announcements may come late. */
const ANNOUNCED_MS = 300;
/** A stream begins with code that the engine has not compiled yet. Daemons run for weeks: this part is told by itself. */
const FIRST_SECONDS = 10;
const HEALTH_EVERY_MS = 2;
const AT_ONCE = 100;
/** Of a hundred changes in one sync. */
const ROUNDS = 10;
const WARM_UP = 20;
/** A listing takes many seconds from here on. */
const LARGE = 10_000;

export async function measureNftables(task: NftablesTask): Promise<NftablesFigures> {
  const { layout, parts, services, endpointsEach, limitMs } = task;
  const subject = new NftSubject(endpointsEach, layout);
  const load = await measureLoad(subject, services);
  const watched = await measureWatched(subject, task);
  const healing = parts.includes("healing") && { healing: await measureHealing(subject, task.trials) };
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-nft-"));
  const script = join(folder, "script.nft");
  try {
    const upstream = parts.includes("upstream") && { upstream: await measureUpstream(subject, task, script) };
    await subject.close();
    const isLoading = parts.includes("load");
    if (isLoading) writeFileSync(script, listRuleset());
    const loads = isLoading && {
      ...{ sentMs: await timeBatchesOfLoad(task), nftLoadMs: undefined },
      ...(layout === "Compatible" && { nftLoadMs: await runNft(script, limitMs) }),
    };
    return { layout, services, load: { ...load, ...loads }, ...watched, ...healing, ...upstream };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function measureLoad(subject: NftSubject, services: number): Promise<LoadFigures> {
  subject.load(services);
  const { rssMb: modelMb } = await settledMemory();
  resetPeak();
  const server = createServer((_request, response) => response.end("ok"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // listening on TCP
  const asked = { port, path: "/healthz", pauseMs: HEALTH_EVERY_MS };
  let longestTurnMs = 0;
  const [loadMs, health] = await withLatency(asked, () =>
    timed(async () => {
      longestTurnMs = await longestTurn(() => subject.fullSync());
    }),
  );
  server.closeAllConnections();
  server.close();
  const { peakMb } = memoryNow();
  const { rssMb: settledMb } = await settledMemory();
  const { transactions } = subject;
  subject.restart();
  const restartMs = await timed(() => subject.fullSync());
  // What the backend before it leaves is no part of what follows: a daemon has but one.
  await settledMemory();
  const restartWrites = subject.transactions - transactions;
  return { loadMs, healthMaxMs: health.maxMs, longestTurnMs, modelMb, peakMb, settledMb, restartMs, restartWrites };
}

/**
 * In a load the next batch is planned and encoded while the kernel has one. So the batches are taken from one, and sent again to the kernel as
 * it was before, with nothing beside. @returns milliseconds from sending to the kernel's answer, of all together.
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
  // The kernel frees what is deleted later, in a thread of its own. Meanwhile all is encoded.
  for (const operations of transactions) batches.push(await raw.encode(operations, true));
  let sentMs = 0;
  for (const batch of batches) sentMs += await raw.send(batch);
  await raw.close();
  flushRuleset();
  return sentMs;
}

/** What is measured while the table is watched, as the daemon watches it. */
async function measureWatched(subject: NftSubject, task: NftablesTask) {
  const { layout, parts, burstSeconds, burstRate } = task;
  const isChanging = parts.includes("changes");
  // The floor's batches are another program's to the backend. In the flat layout they touch sets that all services share, and
  // what would be measured is the repair.
  const isWatchedLater = layout === "Flat";
  const unwatched = isChanging && isWatchedLater ? await measureChanges(subject, task) : undefined;
  let losses = 0;
  const stopWatching = await subject.watch(() => {
    losses += 1;
  });
  const changes = isChanging && !isWatchedLater ? await measureChanges(subject, task) : unwatched;
  await sleep(ANNOUNCED_MS);
  // Until here some batches went another way than the subject's.
  losses = 0;
  const burst = async (seconds: number) =>
    parts.includes("burst") ? await measureBurst(subject, burstRate, seconds) : undefined;
  const burstBefore = await burst(FIRST_SECONDS);
  const later = await burst(burstSeconds);
  await sleep(ANNOUNCED_MS);
  if (losses > 0) throw new Error("our own commits were taken for those of another program");
  await stopWatching();
  return { ...(changes && { changes }), ...(later && { burst: later }), ...(burstBefore && { burstBefore }) };
}

/** Batches as bytes, made beforehand and sent over a plain socket in this thread, with nothing around them. */
class RawBatches {
  readonly #client = openNftables();

  /** @param isNew nothing in the table is from another process: anonymous sets have the short names of a first load. */
  async encode(operations: Iterable<NftOperation>, isNew = false): Promise<NftBatch> {
    const { batch } = await encodeTransaction({ layout: LAYOUTS.ip, table: TABLE, isNew }, operations);
    batch.finish();
    return batch;
  }

  /** @returns milliseconds from sending to the kernel's answer. Rejects when it is refused. */
  async send(batch: NftBatch): Promise<number> {
    const startMs = performance.now();
    const result = await this.#client.commit(batch, { isSlow: false });
    if (!result.committed) throw new Error(result.failures[0]?.message ?? "a batch was refused");
    return performance.now() - startMs;
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}

/** Changes and their commits; and in turns with them, so that a machine that gets busier shows in both, what the kernel takes at least. */
async function measureChanges(subject: NftSubject, { services, changes }: NftablesTask): Promise<ChangeFigures> {
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
  return {
    ...{ one: spread(whole), own: spread(own), cpuMs: cpuMs / changes },
    ...{ floor: spread(floor), floorCpuMs: floorCpuMs / changes },
    ...{ hundred: spread(hundred), added: spread(added) },
  };
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

/** From another program's commit to the commit of the repair. The subject must not be watched otherwise. */
async function measureHealing(subject: NftSubject, trials: number): Promise<Readonly<Record<string, Spread>>> {
  // One that was watched before would look at everything first.
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
  const found: Record<string, Spread> = {};
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
      found[kind] = spread(samples);
    }
  } finally {
    await stopWatching();
    await others.close();
  }
  return found;
}

/** Changes, each done once more by `nft -f` with what upstream would send. @param file for what nft reads. */
async function measureUpstream(subject: NftSubject, task: NftablesTask, file: string): Promise<UpstreamFigures> {
  const { services, nftChanges, limitMs } = task;
  const repeated = async (rounds: number, change: (round: number) => void): Promise<Spread | undefined> => {
    const samples: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      change(round);
      const transactions = await subject.operationsOf(() => subject.syncChanges(), true);
      writeFileSync(file, nftScript(TABLE, transactions.at(-1) ?? []));
      const took = await runNft(file, limitMs);
      if (took === undefined) break;
      samples.push(took);
    }
    return samples.length === 0 ? undefined : spread(samples);
  };
  const replaceMany = (count: number) => (round: number) => {
    for (let n = 0; n < count; n += 1) subject.replaceEndpoint(subject.scattered(round * count + n));
  };
  const startCpuMs = toolsCpuMs();
  const listings = Array.from({ length: services > LARGE ? 1 : 3 }, () => timeUpstreamListing(TABLE));
  const listedCpuMs = toolsCpuMs();
  const one = await repeated(nftChanges, replaceMany(1));
  const oneCpuMs = (toolsCpuMs() - listedCpuMs) / nftChanges;
  const hundred = await repeated(Math.min(2, nftChanges), replaceMany(Math.min(AT_ONCE, services)));
  const added = await repeated(nftChanges, (round) => subject.setService(2 * services + round, "add"));
  const listingCpuMs = (listedCpuMs - startCpuMs) / listings.length;
  return { one, hundred, added, listing: spread(listings), oneCpuMs, listingCpuMs };
}
