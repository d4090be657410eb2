import assert from "node:assert/strict";
import { test } from "node:test";
import type { BackEnd, RepeatedFigures, SizeResult, StepReport, SyncFigures } from "./figures.ts";
import { judge } from "./targets.ts";

const LIMIT_MS = 60_000;
const memory = { rssMb: 0, peakMb: 0, heapMb: 0 };

function figures(ownMs: number): SyncFigures {
  return {
    wallMs: 0,
    modelMs: 0,
    otherToolsMs: 0,
    planMs: 0,
    payloadMs: 0,
    restoreMs: 0,
    writeCpuMs: 0,
    ownMs,
    bytes: 0,
    ownCpuMs: ownMs - 10,
    otherToolsCpuMs: 10,
    restoreCpuMs: 0,
  };
}

interface Measured {
  readonly backEnd?: BackEnd;
  readonly planningMs?: number;
  readonly fullMs?: number;
  readonly aloneMs?: readonly number[];
  readonly more?: readonly StepReport[];
}

function result(services: number, measured: Measured): SizeResult {
  const { backEnd = "legacy", planningMs, fullMs, aloneMs = [], more = [] } = measured;
  const reports: StepReport[] = [...more];
  if (planningMs !== undefined) {
    const repeated: RepeatedFigures = { count: 1, median: figures(planningMs), ownP90Ms: 0 };
    reports.push({ step: "planning", figures: repeated });
  }
  if (fullMs !== undefined)
    reports.push({ step: "full", isPretended: false, figures: figures(fullMs), after: memory, settled: memory });
  return {
    backEnd,
    services,
    endpointsEach: 5,
    textBytes: 0,
    alone: aloneMs.map((cpuMs) => ({ cpuMs, wallMs: 0 })),
    reports,
  };
}

const passes = (results: readonly SizeResult[]) => judge(results, LIMIT_MS).map(({ passed }) => passed);

test("planning may grow by half from the cheapest size to the largest, for each back end by itself", () => {
  const small = result(100, { planningMs: 1.1 });
  const middle = result(1000, { planningMs: 1 });
  assert.deepEqual(passes([small, middle, result(10_000, { planningMs: 1.5 })]), [true]);
  assert.deepEqual(passes([small, middle, result(10_000, { planningMs: 1.6 })]), [false]);
  assert.deepEqual(passes([small, result(10_000, { planningMs: 9, backEnd: "nft" })]), []);
});

test("own work is measured against the median of iptables-restore alone, in large clusters", () => {
  assert.deepEqual(passes([result(10_000, { fullMs: 249, aloneMs: [900, 1000, 5000] })]), [true]);
  assert.deepEqual(passes([result(10_000, { fullMs: 251, aloneMs: [900, 1000, 5000] })]), [false]);
  assert.deepEqual(passes([result(100, { fullMs: 251, aloneMs: [10] })]), []);
});

test("an iptables-restore that was cut off counts as long as its limit", () => {
  assert.deepEqual(passes([result(10_000, { fullMs: LIMIT_MS / 4 - 1 })]), [true]);
  assert.deepEqual(passes([result(10_000, { fullMs: LIMIT_MS / 4 + 1 })]), [false]);
});

test("a step that failed is a missed target, one that was cut off is none", () => {
  const failed = result(100, { more: [{ step: "failed", what: "restart", reason: "exit status 1" }] });
  const cutOff = result(100, { more: [{ step: "cut off", what: "restart", reason: "no time left" }] });
  assert.deepEqual(passes([failed, cutOff]), [false]);
});

test("of several full syncs the middle one counts", () => {
  const full = (ownMs: number): StepReport => ({
    step: "full",
    isPretended: false,
    figures: figures(ownMs),
    after: memory,
    settled: memory,
  });
  assert.deepEqual(passes([result(10_000, { aloneMs: [1000], more: [full(900), full(200), full(210)] })]), [true]);
  assert.deepEqual(passes([result(10_000, { aloneMs: [1000], more: [full(900), full(200), full(910)] })]), [false]);
});
