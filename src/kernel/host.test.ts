/** Small facts about the machine: CPUs, OOM score, IPv6. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { memorySysctls } from "../../testkit/fakes/sysctl-memory.ts";
import { type Logger, silentLogger } from "../logging/logger.ts";
import { cpuCount } from "./conntrack/tuning.ts";
import { isIpv6Supported } from "./ipv6-support.ts";
import { applyOomScore } from "./oom-score.ts";

function inFolder(use: (folder: string) => void): void {
  const folder = mkdtempSync(join(tmpdir(), "kpts-host-"));
  try {
    use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("CPUs of all NUMA nodes are counted, where they have a topology", () =>
  inFolder((root) => {
    for (const path of ["node0/cpu0", "node0/cpu1", "node1/cpu2", "node1/cpulist"]) {
      mkdirSync(join(root, "node", path, "topology"), { recursive: true });
      writeFileSync(join(root, "node", path, "topology", "core_id"), "0\n");
    }
    mkdirSync(join(root, "node/node1/cpu3"), { recursive: true });
    assert.equal(cpuCount(root), 3);
  }));

test("without NUMA folders all CPUs are counted", () =>
  inFolder((root) => {
    for (const name of ["cpu0", "cpu1", "cpu11", "cpufreq", "cpuidle"])
      mkdirSync(join(root, "cpu", name), { recursive: true });
    assert.equal(cpuCount(root), 3);
  }));

test("without sysfs the CPUs of this process count", () =>
  inFolder((root) => assert.equal(cpuCount(join(root, "none")), availableParallelism())));

test("the OOM score is written once when that works", async () => {
  const written: string[] = [];
  await applyOomScore(-999, { log: silentLogger, write: async (text) => void written.push(text) });
  assert.deepEqual(written, ["-999"]);
});

test("the OOM score is tried twice, 100 ms apart, and a failure is only logged", async () => {
  const events: string[] = [];
  const log: Logger = { ...silentLogger, v: (level, message) => void events.push(`v${level} ${message}`) };
  await applyOomScore(-999, {
    log,
    write: async () => {
      events.push("write");
      throw new Error("EACCES");
    },
    sleep: async (ms) => void events.push(`sleep ${ms}`),
  });
  assert.deepEqual(events, ["write", "sleep 100", "write", "v2 Failed to apply OOMScore"]);
});

test("IPv6 needs the kernel's support and must not be disabled", async () => {
  const enabled = memorySysctls({ "net/ipv6/conf/all/disable_ipv6": 0 });
  const disabled = memorySysctls({ "net/ipv6/conf/all/disable_ipv6": 1 });
  const interfacesFile = import.meta.filename;
  assert.equal(await isIpv6Supported({ sysctls: enabled, interfacesFile }), true);
  assert.equal(await isIpv6Supported({ sysctls: disabled, interfacesFile }), false);
  assert.equal(await isIpv6Supported({ sysctls: enabled, interfacesFile: `${interfacesFile}.none` }), false);
  assert.equal(await isIpv6Supported({ sysctls: memorySysctls(), interfacesFile }), true);
});
