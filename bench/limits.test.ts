import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import { kernelSkip } from "../testkit/support/topology.ts";
import { BENCH_MODES } from "./backends.ts";
import { limitsTable } from "./limits.ts";

test("what has not ended in time is said so", () => {
  const task = { mode: "Flat", services: 1, endpointsEach: 9, ports: 2, limitMs: 5000 } as const;
  const text = limitsTable([{ task, loadMs: 12.3, peakMb: 99.7 }]);
  assert.match(text, /^1 × 9, 2 ports, Flat +12\.3 +not in 5 s +not in 5 s +0 +100$/m);
});

test("a Service of many ports is loaded, changed and compared in every mode that the kernel has", {
  skip: kernelSkip,
}, () => {
  const run = fileURLToPath(new URL("./run.ts", import.meta.url));
  const modes = BENCH_MODES.filter((mode) => mode !== "ebpf" || cgroupMount() !== undefined);
  const args = [run, "limits", "--quick", "--states", "ports", "--modes", modes.join(",")];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 300_000 });
  assert.equal(status, 0, stderr);
  for (const mode of modes) {
    assert.match(stdout, new RegExp(`^1 × 3, 10 ports, ${mode} +[\\d.]+ +[\\d.]+ +[\\d.]+ +0 +\\d+$`, "m"));
  }
});
