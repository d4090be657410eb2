import assert from "node:assert/strict";
import { test } from "node:test";
import { ipvsTable, judgeIpvs } from "./ipvs.ts";
import type { IpvsFigures } from "./ipvs-figures.ts";

const FIGURES: IpvsFigures = {
  machine: "m",
  steps: [
    { what: "added", tool: "ipvsadm -R", oursMs: [3, 1, 2], toolMs: [4, 4, 4], pausesMs: [1, 9, 2] },
    { what: "read", tool: "ipset list", oursMs: [5], toolMs: [4], pausesMs: [1] },
  ],
};

test("the ipvs bench compares medians, as a table", () => {
  const [, , added] = ipvsTable(FIGURES).split("\n");
  assert.match(added ?? "", /^added +ipvsadm -R +2\.00 +4\.00 +0\.50 +2\.00$/);
});

test("the ipvs bench's target is missed where the tool is faster", () => {
  assert.deepEqual(
    judgeIpvs(FIGURES).map(({ passed }) => passed),
    [true, false],
  );
  assert.equal(judgeIpvs(FIGURES)[1]?.text, "ipvs: read: 1.25 times what ipset list takes (under 1)");
});
