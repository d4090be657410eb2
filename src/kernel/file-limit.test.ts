import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { type FileLimitCalls, type FileLimits, raiseFileLimit } from "./file-limit.ts";

/** A process whose hard limit may be raised up to `ceiling`. */
function fakeCalls(limits: FileLimits, ceiling = limits.hard): FileLimitCalls & { limits: FileLimits } {
  return {
    limits,
    read() {
      return this.limits;
    },
    write(wanted) {
      if (wanted.hard > ceiling) return "EPERM";
      this.limits = wanted;
      return undefined;
    },
  };
}

test("the limit is raised, the hard one with it", () => {
  const calls = fakeCalls({ soft: 1024, hard: 4096 }, 1e6);
  assert.deepEqual(raiseFileLimit(64_000, calls), { limit: 64_000, problem: undefined });
  assert.deepEqual(calls.limits, { soft: 64_000, hard: 64_000 });
});

test("a higher limit is never lowered (userspace.md §1.1)", () => {
  for (const soft of [64_000, 500_000, Number.POSITIVE_INFINITY]) {
    const calls = fakeCalls({ soft, hard: Number.POSITIVE_INFINITY });
    assert.deepEqual(raiseFileLimit(64_000, calls), { limit: soft, problem: undefined });
    assert.equal(calls.limits.soft, soft);
  }
  const calls = fakeCalls({ soft: 1024, hard: 500_000 });
  raiseFileLimit(64_000, calls);
  assert.deepEqual(calls.limits, { soft: 64_000, hard: 500_000 });
});

test("without the right to raise the hard limit the soft one goes up to it, and the answer says so", () => {
  const calls = fakeCalls({ soft: 1024, hard: 4096 });
  assert.deepEqual(raiseFileLimit(64_000, calls), {
    limit: 4096,
    problem:
      "at most 4096 open files, 64000 wanted: raising the limit failed (EPERM); " +
      "set LimitNOFILE= of the service, or --ulimit nofile= of the container",
  });
});

test("the kernel has what was asked for, in a process with a low limit", () => {
  const module = fileURLToPath(new URL("./file-limit.ts", import.meta.url));
  const script = `
    const { raiseFileLimit } = await import(process.argv[1]);
    const { readFileSync } = await import("node:fs");
    const raised = raiseFileLimit(5000);
    const [soft] = /Max open files +(\\S+)/.exec(readFileSync("/proc/self/limits", "utf8")).slice(1);
    console.log(JSON.stringify({ raised, soft }));`;
  const node = `exec "$0" --input-type=module -e "$1" "$2"`;
  const run = (limit: string) =>
    JSON.parse(execFileSync("sh", ["-c", `${limit}; ${node}`, process.execPath, script, module], { encoding: "utf8" }));
  const isPrivileged = process.getuid?.() === 0 && hasCapability(CAP_SYS_RESOURCE);
  const low = run("ulimit -n 256");
  const expected = isPrivileged ? 5000 : 256;
  assert.deepEqual([low.raised.limit, low.soft], [expected, String(expected)]);
  assert.equal(low.raised.problem === undefined, isPrivileged);
  const high = run("ulimit -n 6000");
  assert.deepEqual([high.raised.limit, high.soft], [6000, "6000"]);
});

const CAP_SYS_RESOURCE = 24n;

function hasCapability(capability: bigint): boolean {
  const effective = /CapEff:\s*([0-9a-f]+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return ((BigInt(`0x${effective}`) >> capability) & 1n) === 1n;
}
