/**
 * One size, in a process of its own inside a fresh namespace. Argument: a NftablesTask as JSON. Standard output:
 * NftablesFigures as one line of JSON.
 */
import { mkdtempSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { withHealthLatency } from "./health-latency.ts";
import { memoryNow, resetPeak, settledMemory } from "./memory.ts";
import { flushRuleset, listRuleset, runNft } from "./nft-program.ts";
import { measureBurst } from "./nftables-burst.ts";
import { measureChanges } from "./nftables-changes.ts";
import type { LoadFigures, NftablesFigures, NftablesTask } from "./nftables-figures.ts";
import { measureHealing } from "./nftables-healing.ts";
import { NftSubject } from "./nftables-subject.ts";
import { measureUpstream } from "./nftables-upstream.ts";
import { timed } from "./table.ts";

/** Announcements may come late. */
const ANNOUNCED_MS = 300;
/** A stream begins with code that the engine has not compiled yet. Daemons run for weeks: this part is told by itself. */
const FIRST_SECONDS = 10;

async function measureLoad(subject: NftSubject, { services }: NftablesTask): Promise<LoadFigures> {
  subject.load(services);
  const { rssMb: modelMb } = await settledMemory();
  resetPeak();
  const health = await withHealthLatency(() => timed(() => subject.fullSync(false)));
  const { peakMb } = memoryNow();
  const { rssMb: settledMb } = await settledMemory();
  const { transactions } = subject;
  const restartMs = await timed(() => subject.fullSync(true));
  // What the backend before it leaves is no part of what follows: a daemon has but one.
  await settledMemory();
  return {
    loadMs: health.result,
    healthMaxMs: health.maxMs,
    healthRequests: health.requests,
    longestTurnMs: health.longestTurnMs,
    modelMb,
    peakMb,
    settledMb,
    restartMs,
    restartWrites: subject.transactions - transactions,
  };
}

/** What is measured while the table is watched, as the daemon watches it. */
async function measureWatched(subject: NftSubject, task: NftablesTask) {
  const isChanging = task.parts.includes("changes");
  // The floor's batches are another program's to the backend. In the flat layout they touch sets that all services share, and
  // what would be measured is the repair.
  const isWatchedLater = task.layout === "Flat";
  const unwatched = isChanging && isWatchedLater ? await measureChanges(subject, task) : undefined;
  let losses = 0;
  const stopWatching = await subject.watch(() => {
    losses += 1;
  });
  const changes = isChanging && !isWatchedLater ? await measureChanges(subject, task) : unwatched;
  await sleep(ANNOUNCED_MS);
  // Until here some batches went another way than the subject's.
  losses = 0;
  const isStream = task.parts.includes("burst");
  const before = isStream ? await measureBurst(subject, { ...task, burstSeconds: FIRST_SECONDS }) : undefined;
  const burst = isStream ? await measureBurst(subject, task) : undefined;
  await sleep(ANNOUNCED_MS);
  if (losses > 0) throw new Error("our own commits were taken for those of another program");
  await stopWatching();
  return { ...(changes && { changes }), ...(burst && { burst }), ...(before && { burstBefore: before }) };
}

async function measure(task: NftablesTask, folder: string): Promise<NftablesFigures> {
  const { parts, services } = task;
  const subject = new NftSubject(task.endpointsEach, task.layout);
  const load = await measureLoad(subject, task);
  const watched = await measureWatched(subject, task);
  const healing = parts.includes("healing") ? await measureHealing(subject, task) : undefined;
  const script = join(folder, "script.nft");
  const upstream = parts.includes("upstream") ? await measureUpstream(subject, task, script) : undefined;
  await subject.close();
  let upstreamLoad: NftablesFigures["upstreamLoad"];
  if (parts.includes("upstream-load")) {
    writeFileSync(script, listRuleset());
    flushRuleset();
    upstreamLoad = { loadMs: await runNft(script, task.limitMs) };
  }
  return {
    layout: task.layout,
    services,
    load,
    ...watched,
    ...(healing && { healing }),
    ...(upstream && { upstream }),
    ...(upstreamLoad && { upstreamLoad }),
  };
}

const task: NftablesTask = JSON.parse(process.argv[2] ?? "{}");
const folder = mkdtempSync(join(tmpdir(), "kpts-bench-nft-"));
try {
  writeSync(1, `${JSON.stringify(await measure(task, folder))}\n`);
} finally {
  rmSync(folder, { recursive: true });
}
