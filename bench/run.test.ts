import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import { reportOf, reportsOf, type SizeResult } from "./figures.ts";

test("every step of a small run is measured with both back ends, and nothing is left behind", {
  skip: kernelSkip,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-test-"));
  try {
    const json = join(folder, "figures.json");
    const run = fileURLToPath(new URL("./run.ts", import.meta.url));
    const command = [run, "--quick", "--sizes", "40", "--json", json];
    const { pid, status, stderr } = spawnSync(process.execPath, command, { encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 0, stderr);
    const { results }: { readonly results: readonly SizeResult[] } = JSON.parse(readFileSync(json, "utf8"));
    assert.deepEqual(
      results.map(({ backEnd, services }) => [backEnd, services]),
      [
        ["legacy", 40],
        ["nft", 40],
      ],
    );
    for (const result of results) {
      assert.deepEqual([...reportsOf(result, "failed"), ...reportsOf(result, "cut off")], []);
      assert.equal(reportOf(result, "full")?.figures.bytes, result.textBytes);
      assert.deepEqual(
        reportsOf(result, "change").map(({ change }) => change),
        ["endpoint replaced", "service added", "service removed"],
      );
      assert.ok((reportOf(result, "restart")?.figures.restoreMs ?? 0) > 0);
      assert.ok((reportOf(result, "planning")?.figures.median.ownMs ?? 0) > 0);
      assert.ok(result.alone.length >= 3);
    }
    const namespaces = execFileSync("ip", ["netns", "list"], { encoding: "utf8" });
    assert.ok(!namespaces.includes(`kpts-bench-${pid}-`), namespaces);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
