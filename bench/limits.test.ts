import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import { limitsTable } from "./limits.ts";

test("what has not ended in time is said so", () => {
  const task = { layout: "Flat", services: 1, endpointsEach: 9, ports: 2, limitMs: 5000 } as const;
  const text = limitsTable([{ task, loadMs: 12.3, peakMb: 99.7 }]);
  assert.match(text, /^1 × 9, 2 ports, Flat +12\.3 +not in 5 s +not in 5 s +100$/m);
});

test("a Service of many ports is loaded, changed and compared in both layouts", { skip: kernelSkip }, () => {
  const run = fileURLToPath(new URL("./run.ts", import.meta.url));
  const args = [run, "limits", "--quick", "--states", "ports"];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 300_000 });
  assert.equal(status, 0, stderr);
  for (const layout of ["Compatible", "Flat"]) {
    assert.match(stdout, new RegExp(`^1 × 3, 10 ports, ${layout} +[\\d.]+ +[\\d.]+ +[\\d.]+ +\\d+$`, "m"));
  }
});
