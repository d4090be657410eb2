import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import type { SizeResult } from "./iptables.ts";

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
    for (const { runs } of results) {
      assert.ok(runs.length >= 3);
      for (const { cutOff, full, alone, textBytes } of runs) {
        assert.deepEqual(cutOff, []);
        for (const value of [full?.ownCpuMs, full?.restoreMs, alone?.ms, textBytes]) assert.ok((value ?? 0) > 0);
      }
      const [first] = runs;
      const changes = first?.changes ?? {};
      assert.deepEqual(Object.keys(changes), ["endpoint replaced", "service added", "service removed"]);
      for (const { restoreMs, ownMs, bytes } of Object.values(changes)) {
        for (const value of [restoreMs, ownMs, bytes]) assert.ok((value ?? 0) > 0);
      }
      for (const value of [changes["endpoint replaced"]?.upstreamMs, first?.restartMs, first?.planningMs]) {
        assert.ok((value ?? 0) > 0);
      }
    }
    const namespaces = execFileSync("ip", ["netns", "list"], { encoding: "utf8" });
    assert.ok(!namespaces.includes(`kpts-bench-${pid}-`), namespaces);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
