import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import { kernelSkip } from "../testkit/support/topology.ts";
import { BENCH_MODES } from "./backends.ts";
import { ended } from "./limits.ts";
import { figuresTable, Notes } from "./table.ts";

test("what has not ended in time is said so", () => {
  const notes = new Notes();
  notes.add("load", 12.3);
  const text = figuresTable("", { "1 × 9, Flat": ended(notes, 5000, 0) });
  assert.match(text, /^load +12\.3$/m);
  assert.match(text, /^an endpoint replaced +not in 5 s$/m);
  assert.match(text, /^restart, all compared +not in 5 s$/m);
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
