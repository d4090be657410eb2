import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kernelSkip } from "../testkit/support/topology.ts";
import {
  judgeTraffic,
  LOADS,
  type TrafficFigures,
  type TrafficResults,
  trafficTable,
  WAYS,
  type Way,
} from "./userspace.ts";

/** Every path does equally well except for these counts. */
function resultsWith(counts: Partial<Record<Way, number>>): TrafficResults {
  const figures = (way: Way): TrafficFigures => {
    const count = counts[way] ?? 1000;
    return {
      seconds: 1,
      count,
      latencyMs: { count: 1, p50: 0.05, p99: 0.2, worst: 0.2 },
      proxyCpuMs: 100,
      allCpuMs: 200,
    };
  };
  const ways = Object.fromEntries(WAYS.map((way) => [way, [figures(way), figures(way)]]));
  return Object.fromEntries(LOADS.map((load) => [load, ways])) as unknown as TrafficResults;
}

const failures = (results: TrafficResults) =>
  judgeTraffic(results)
    .filter(({ passed }) => !passed)
    .map(({ text }) => text);

test("the mode is judged by what a plain pipe carries", () => {
  assert.deepEqual(failures(resultsWith({ userspace: 500 })), []);
  assert.deepEqual(
    failures(resultsWith({ userspace: 499 })).map((text) => text.replace(/ % of.*/, "")),
    ["download: 50", "upload: 50", "connections: 50"],
  );
  assert.deepEqual(failures(resultsWith({ iptables: 0 })), ["every load went every way"]);
});

test("the table has figures per connection and per gigabyte", () => {
  const lines = trafficTable(resultsWith({ userspace: 2000 })).split("\n");
  assert.match(lines[2] ?? "", /^connections a second +1000 +1000 +2000 +1000$/);
  assert.match(lines[3] ?? "", /^ {2}proxy's CPU, ms for 1000 +100 +100 +50 +100$/);
  assert.match(lines.at(-2) ?? "", / +50 +50$/);
  assert.match(lines.at(-1) ?? "", / +200 +200$/);
});

test("a small run sends every load every way, and leaves nothing behind", { skip: kernelSkip }, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-test-"));
  try {
    const json = join(folder, "figures.json");
    const run = fileURLToPath(new URL("./run.ts", import.meta.url));
    const command = [run, "userspace", "--rounds", "1", "--seconds", "0.2", "--json", json];
    const { pid, status, stderr } = spawnSync(process.execPath, command, { encoding: "utf8", timeout: 120_000 });
    assert.equal(status, 0, stderr);
    const { results }: { readonly results: TrafficResults } = JSON.parse(readFileSync(json, "utf8"));
    for (const load of LOADS) {
      for (const way of WAYS) assert.ok((results[load][way][0]?.count ?? 0) > 0, `${load} ${way}`);
    }
    const namespaces = execFileSync("ip", ["netns", "list"], { encoding: "utf8" });
    assert.ok(!namespaces.includes(`kpts-traffic-${pid}.`), namespaces);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
