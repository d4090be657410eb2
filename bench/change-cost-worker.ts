/**
 * One size, in a process of its own. Argument: a ChangeCostTask as JSON. Standard output: ChangeCostFigures as one line of
 * JSON.
 */
import { writeSync } from "node:fs";
import { type ChangeCostFigures, type ChangeCostTask, RATES } from "./change-cost.ts";
import { ChangeCostSubject } from "./change-cost-subject.ts";
import { idleMemory, memoryNow } from "./memory.ts";

/** The engine compiles what is hot in this time. */
const WARM_UP = 1_500;
const SCRAPES = 20;
/** Changes that follow each other are far apart. */
const SCATTER = 7919;
const TICK_MS = 1;

/** Processor time of all threads, µs. */
function cpuUs(since?: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return user + system;
}

/** Mean processor time of changes that come one after the other, each alone in its sync. */
async function oneByOne(count: number, change: (n: number) => Promise<void>): Promise<number> {
  const cpu = process.cpuUsage();
  for (let n = 0; n < count; n += 1) await change(n);
  return cpuUs(cpu) / count;
}

async function measureAlone(task: ChangeCostTask) {
  const { services, changes } = task;
  const { rssMb: emptyMb, heapMb: emptyHeapMb } = idleMemory();
  const subject = new ChangeCostSubject(task.endpointsEach, false, task.layout);
  const startMs = performance.now();
  const cpu = process.cpuUsage();
  await subject.load(services);
  const load = { loadMs: performance.now() - startMs, loadCpuMs: cpuUs(cpu) / 1000 };
  const { rssMb, heapMb } = idleMemory();
  const lines = Array.from({ length: WARM_UP + changes }, (_, n) =>
    subject.replacedEndpoint((n * SCATTER) % services, 1 + Math.floor(n / services)),
  );
  const replace = async (n: number): Promise<void> => {
    const { synced } = subject;
    const line = lines[n];
    if (line !== undefined) subject.pushSlice(line);
    await synced;
  };
  await oneByOne(WARM_UP, replace);
  const bytesBefore = subject.kernel.bytes;
  const replacedUs = await oneByOne(changes, (n) => replace(WARM_UP + n));
  const bytes = (subject.kernel.bytes - bytesBefore) / changes;
  const added = Array.from({ length: changes }, (_, n) => subject.service(services + n, "ADDED"));
  const addedUs = await oneByOne(changes, async (n) => {
    const { synced } = subject;
    const lines = added[n];
    if (lines !== undefined) {
      subject.pushSlice(lines.slice);
      subject.pushService(lines.service);
    }
    await synced;
  });
  const scrapeUs = await oneByOne(SCRAPES, async () => void (await subject.scrape()));
  await subject.close();
  return {
    ...load,
    replacedUs,
    addedUs,
    scrapeUs,
    bytes,
    memory: { emptyMb, emptyHeapMb, rssMb, heapMb },
  };
}

/** Changes at a steady rate, synced when the daemon would. */
async function atRate(subject: ChangeCostSubject, task: ChangeCostTask, perSecond: number): Promise<number> {
  const { services, seconds } = task;
  const count = perSecond * seconds;
  const lines = Array.from({ length: count }, (_, n) =>
    subject.replacedEndpoint((n * SCATTER) % services, 20 + Math.floor(n / services)),
  );
  let made = 0;
  const startMs = performance.now();
  const cpu = process.cpuUsage();
  await new Promise<void>((resolve) => {
    const ticking = setInterval(() => {
      const due = Math.min(count, Math.floor(((performance.now() - startMs) / 1000) * perSecond));
      if (due > made) subject.pushSlice(Buffer.concat(lines.slice(made, due)));
      made = due;
      if (made < count) return;
      clearInterval(ticking);
      resolve();
    }, TICK_MS);
  });
  await subject.synced;
  return cpuUs(cpu) / count;
}

async function measureRates(task: ChangeCostTask) {
  const subject = new ChangeCostSubject(task.endpointsEach, true, task.layout);
  await subject.load(task.services);
  const atRates: { perSecond: number; us: number }[] = [];
  for (const perSecond of RATES) atRates.push({ perSecond, us: await atRate(subject, task, perSecond) });
  const { rssMb } = memoryNow();
  await subject.close();
  return { atRates, rssAfterMb: rssMb };
}

const task: ChangeCostTask = JSON.parse(process.argv[2] ?? "{}");
const alone = await measureAlone(task);
const rates = task.seconds > 0 ? await measureRates(task) : { atRates: [], rssAfterMb: alone.memory.rssMb };
const figures: ChangeCostFigures = { services: task.services, ...alone, ...rates };
writeSync(1, `${JSON.stringify(figures)}\n`);
