import assert from "node:assert/strict";
import { test } from "node:test";
import { type StartFigures, startTable } from "./start.ts";

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

test("the floor is the sum of each round, next to the other checkout's start of that round", () => {
  const starts = [[500, 1000, 2000].map(figures), [1000, 2000, 5000].map(figures)];
  const floor = [
    { parsedMs: 300, sentMs: 400, cpuMs: 200 },
    { parsedMs: 400, sentMs: 200, cpuMs: 200 },
    { parsedMs: 900, sentMs: 600, cpuMs: 200 },
  ];
  const text = startTable({ task, listBytes: 1, starts, floor });
  assert.match(text, /^the batches for it only sent, ms +400$/m);
  assert.match(text, /^floor: lists parsed, then batches sent, ms +700 +0\.30$/m);
  const alone = startTable({ task, listBytes: 1, starts: starts.slice(0, 1), floor });
  assert.match(alone, /^floor: lists parsed, then batches sent, ms +700$/m);
});

test("where no batches are sent nothing is said of them", () => {
  const floor = [{ parsedMs: 300, cpuMs: 200 }];
  const text = startTable({ task: { ...task, mode: "ipvs" }, listBytes: 1, starts: [[figures(100)]], floor });
  assert.doesNotMatch(text, /sent/);
});

test("the layout that was asked for stands in the table", () => {
  const text = startTable({ task: { ...task, layout: "Flat" }, listBytes: 1, starts: [[figures(100)]], floor: [] });
  assert.match(text, /^nftables Flat, 3000 × 4 +here$/m);
});

test("a checkout by itself has no ratios", () => {
  const text = startTable({ task, listBytes: 1, starts: [[figures(100)]], floor: [] });
  assert.match(text, /^nftables, 3000 × 4 +here$/m);
});
