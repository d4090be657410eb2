import assert from "node:assert/strict";
import { test } from "node:test";
import { type IpvsFigures, ipvsTable, judgeIpvs, judgeMemory, measureInMemory, memoryTable } from "./ipvs.ts";

const FIGURES: IpvsFigures = {
  machine: "m",
  steps: [
    { what: "added", tool: "ipvsadm -R", oursMs: [3, 1, 2], toolMs: [4, 4, 4] },
    { what: "read", tool: "ipset list", oursMs: [5], toolMs: [4] },
  ],
};

test("the ipvs bench compares medians, as a table", () => {
  const [, , added] = ipvsTable(FIGURES).split("\n");
  assert.match(added ?? "", /^added +ipvsadm -R +2 +4 +0\.50$/);
});

test("the ipvs bench's target is missed where the tool is faster", () => {
  assert.deepEqual(
    judgeIpvs(FIGURES).map(({ passed }) => passed),
    [true, false],
  );
  assert.equal(judgeIpvs(FIGURES)[1]?.text, "ipvs: read: 1.25 times what ipset list takes (under 1)");
});

test("in memory, one endpoint costs the same in every cluster", async () => {
  const steps = await measureInMemory(30, 2, 1);
  assert.deepEqual(
    judgeMemory(steps).map(({ passed, text }) => [passed, text]),
    [
      [true, "ipvs in memory: one endpoint replaced: 3 messages and 0 processes (3 and 0)"],
      [true, "ipvs in memory: one endpoint more: 1 messages and 0 processes (1 and 0)"],
    ],
  );
  assert.match(memoryTable(steps), /30 × 2: first sync, into an empty kernel/);
});
