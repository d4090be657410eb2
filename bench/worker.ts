/**
 * One size with one back end, in a process of its own inside a fresh namespace, so that memory is that of this size.
 * Argument: a WorkerTask as JSON. Standard output: one StepReport as JSON per line.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import type { RepeatedFigures, SmallChange, StepReport, SyncFigures, WorkerTask } from "./figures.ts";
import { MeasuredExec, StepLimitError } from "./measured-exec.ts";
import { memoryNow, resetPeak, settledMemory } from "./memory.ts";
import { Subject } from "./subject.ts";
import { median, quantile } from "./table.ts";

function report(step: StepReport): void {
  writeSync(1, `${JSON.stringify(step)}\n`);
}

/** Runs a step that uses tools. @returns false when it was cut off or failed; that has been reported then. */
async function attempt(exec: MeasuredExec, what: string, limitMs: number, step: () => Promise<void>): Promise<boolean> {
  exec.limit(limitMs);
  try {
    await step();
    return true;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    report({ step: error instanceof StepLimitError ? "cut off" : "failed", what, reason });
    return false;
  } finally {
    exec.limit(Number.POSITIVE_INFINITY);
  }
}

function summary(samples: readonly SyncFigures[]): RepeatedFigures {
  const middle = (pick: (figures: SyncFigures) => number) => median(samples.map(pick));
  return {
    count: samples.length,
    median: {
      wallMs: middle((sample) => sample.wallMs),
      modelMs: middle((sample) => sample.modelMs),
      otherToolsMs: middle((sample) => sample.otherToolsMs),
      planMs: middle((sample) => sample.planMs),
      payloadMs: middle((sample) => sample.payloadMs),
      restoreMs: middle((sample) => sample.restoreMs),
      writeCpuMs: middle((sample) => sample.writeCpuMs),
      ownMs: middle((sample) => sample.ownMs),
      bytes: middle((sample) => sample.bytes),
      ownCpuMs: middle((sample) => sample.ownCpuMs),
      otherToolsCpuMs: middle((sample) => sample.otherToolsCpuMs),
      restoreCpuMs: middle((sample) => sample.restoreCpuMs),
    },
    ownP90Ms: quantile(
      samples.map((sample) => sample.ownMs),
      0.9,
    ),
  };
}

/** Small changes with the real tool, each on another service, until the count or half the limit is reached. */
async function smallChanges(subject: Subject, exec: MeasuredExec, task: WorkerTask): Promise<boolean> {
  const { services, changes, limitMs } = task;
  const steps: readonly [SmallChange, (round: number) => number][] = [
    ["endpoint replaced", (round) => (round * 7919) % services],
    ["service added", (round) => services + round],
    ["service removed", (round) => services + round],
  ];
  let added = changes;
  for (const [change, serviceOf] of steps) {
    const samples: SyncFigures[] = [];
    const started = performance.now();
    const isDone = await attempt(exec, change, limitMs, async () => {
      const count = change === "service removed" ? added : changes;
      while (samples.length < count && performance.now() - started < limitMs / 2) {
        samples.push(await subject.change(change, serviceOf(samples.length)));
      }
    });
    if (samples.length > 0) report({ step: "change", change, figures: summary(samples) });
    if (change === "service added") added = samples.length;
    if (!isDone) return false;
  }
  return true;
}

/** One-endpoint changes of services all over the cluster, tools left out: what planning costs. */
async function plannings(subject: Subject, exec: MeasuredExec, task: WorkerTask): Promise<void> {
  exec.isPretending = true;
  const service = (round: number) => (round * 7919) % task.services;
  const samples: SyncFigures[] = [];
  // Until the engine has compiled what it will run.
  for (let round = 0; round < task.plannings; round += 1) await subject.change("endpoint replaced", service(round));
  globalThis.gc?.();
  for (let round = 0; round < task.plannings; round += 1) {
    samples.push(await subject.change("endpoint replaced", service(round + 13)));
  }
  report({ step: "planning", figures: summary(samples) });
}

async function measure(task: WorkerTask): Promise<void> {
  const exec = new MeasuredExec();
  exec.isPretending = task.onlyOwnWork;
  const subject = await Subject.create(task.backEnd, exec, task.endpointsEach);
  const before = await settledMemory();
  const startMs = performance.now();
  subject.load(task.services);
  const wallMs = performance.now() - startMs;
  report({ step: "load", wallMs, before, after: await settledMemory() });

  const fullSync = async () => {
    resetPeak();
    const figures = await subject.fullSync();
    const after = memoryNow();
    report({ step: "full", isPretended: exec.isPretending, figures, after, settled: await settledMemory() });
  };
  const isDone = await attempt(exec, "full sync", task.limitMs, fullSync);
  if (task.onlyFullSync) return;
  if (isDone) {
    if (!task.onlyOwnWork && (await smallChanges(subject, exec, task))) {
      await attempt(exec, "restart", task.limitMs, async () => {
        resetPeak();
        const figures = await subject.fullSync();
        report({ step: "restart", figures, after: memoryNow() });
      });
    }
  } else {
    exec.isPretending = true;
    await fullSync();
  }
  exec.isPretending = true;
  await subject.fullSync();
  await plannings(subject, exec, task);
}

async function writeText(task: WorkerTask, file: string): Promise<void> {
  const out = openSync(file, "w");
  const exec = new MeasuredExec({ onText: (text) => void writeSync(out, text) });
  exec.isPretending = true;
  const subject = await Subject.create(task.backEnd, exec, task.endpointsEach);
  subject.load(task.services);
  await subject.fullSync();
  closeSync(out);
}

const task: WorkerTask = JSON.parse(process.argv[2] ?? "{}");
if (task.textFile === undefined) await measure(task);
else await writeText(task, task.textFile);
