import assert from "node:assert/strict";
import { test } from "node:test";
import type { BackEnd } from "./backends.ts";
import { type IptablesFigures, iptablesTable, judgeIptables, type SizeResult } from "./iptables.ts";

function result(services: number, runs: readonly Partial<IptablesFigures>[], backEnd: BackEnd = "legacy"): SizeResult {
  return { backEnd, services, runs: runs.map((run) => ({ modelMb: 50, cutOff: [], ...run })) };
}

const planning = (services: number, planningMs: number, backEnd?: BackEnd) =>
  result(services, [{ planningMs }], backEnd);

/** A first sync of which 10 ms are other tools', beside iptables-restore alone. */
const sync = (ownMs: number, cpuMs: number): Partial<IptablesFigures> => ({
  full: { ownCpuMs: ownMs - 10, otherCpuMs: 10, restoreMs: 0 },
  alone: { ms: 0, cpuMs },
});

const passes = (results: readonly SizeResult[]) => judgeIptables(results).map(({ passed }) => passed);

test("planning may grow by half from the cheapest size to the largest, for each back end by itself", () => {
  const small = planning(100, 1.1);
  const middle = planning(1000, 1);
  assert.deepEqual(passes([small, middle, planning(10_000, 1.5)]), [true]);
  assert.deepEqual(passes([small, middle, planning(10_000, 1.6)]), [false]);
  assert.deepEqual(passes([small, planning(10_000, 9, "nft")]), []);
});

test("own work is measured against the median of iptables-restore alone, in large clusters", () => {
  const withAlone = (ownMs: number) => [900, 1000, 5000].map((cpuMs) => sync(ownMs, cpuMs));
  assert.deepEqual(passes([result(10_000, withAlone(249))]), [true]);
  assert.deepEqual(passes([result(10_000, withAlone(251))]), [false]);
  assert.deepEqual(passes([result(100, withAlone(251))]), []);
});

test("of several first syncs the middle one counts", () => {
  const runs = (...all: readonly number[]) => all.map((ownMs) => sync(ownMs, 1000));
  assert.deepEqual(passes([result(10_000, runs(900, 200, 210))]), [true]);
  assert.deepEqual(passes([result(10_000, runs(900, 200, 910))]), [false]);
});

test("the table has what was measured, and what was cut off", () => {
  const changes = { "service added": { restoreMs: 5, upstreamMs: undefined, ownMs: 2, bytes: 300 } };
  const text = iptablesTable("nft", [
    result(100, [{ ...sync(30, 20), changes, cutOff: ["restart: iptables-restore: out of time"] }]),
  ]);
  assert.match(text, /^service added: iptables-restore +5\.00$/m);
  assert.match(text, /^cut off +restart: iptables-restore: out of time$/m);
  assert.doesNotMatch(text, /kube-proxy sends|planning/);
});
