import assert from "node:assert/strict";
import { test } from "node:test";
import { startTable } from "./start.ts";
import type { StartFigures } from "./start-figures.ts";

const figures = (syncedMs: number): StartFigures => ({
  listedMs: 500,
  syncedMs,
  cpuMs: 900,
  peakMb: 120,
  settledMb: 100,
  settledPrivateMb: 50,
});
const task = {
  mode: "nftables",
  services: 3000,
  endpointsEach: 4,
  hasWatchList: true,
  rounds: 3,
  checkouts: [".", "/other"],
  settleSeconds: 1,
} as const;

test("ratios are those of single rounds, which share what else the machine was doing", () => {
  const starts = [[100, 1000, 2000].map(figures), [200, 2000, 4000].map(figures)];
  const text = startTable({ task, listBytes: 9.6e6, starts, floor: [{ parsedMs: 300, cpuMs: 200 }] });
  assert.match(text, /^nftables, 3000 × 4 +here +other +ratio$/m);
  assert.match(text, /^start to rules in the kernel, ms +1000 +2000 +0\.50$/m);
  assert.match(text, /^shortest program, 9\.6 MB read and parsed, ms +300$/m);
});

test("the layout that was asked for stands in the table", () => {
  const text = startTable({ task: { ...task, layout: "Flat" }, listBytes: 1, starts: [[figures(100)]], floor: [] });
  assert.match(text, /^nftables Flat, 3000 × 4 +here$/m);
});

test("a checkout by itself has no ratios", () => {
  const text = startTable({ task, listBytes: 1, starts: [[figures(100)]], floor: [] });
  assert.match(text, /^nftables, 3000 × 4 +here$/m);
});
