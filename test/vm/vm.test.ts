/**
 * Starts the virtual machine once and reports what each test in it did as a test of this file. `KPTS_VM_FILES` (JSON) names
 * other files than the usual ones, `KPTS_VM_FULL=1` adds all kernel tests, `KPTS_VM_NAMES` (JSON) picks tests by name.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type InnerResult, parseResultLine } from "./inner-result.ts";
import { CHECKOUT, runInVm, vmSkip } from "./run-in-vm.ts";
import { vmFiles } from "./vm-files.ts";

const RUNNER = "test/vm/guest/run-test-files.ts";
const isFull = process.env.KPTS_VM_FULL === "1";
const LIMIT_MS = isFull ? 5_400_000 : 1_200_000;
/** The clients and servers of a flow test are processes enough for two processors. */
const CONCURRENCY = "1";

function listFrom(name: string): string[] | undefined {
  const text = process.env[name];
  return text === undefined ? undefined : (JSON.parse(text) as string[]);
}

const files = listFrom("KPTS_VM_FILES") ?? vmFiles(CHECKOUT, isFull);
const names = listFrom("KPTS_VM_NAMES") ?? [];

/** Of tests that show what a kernel does without something: the host's. */
const HAS_IT = /^this one has /;

/** Registers a test whose outcome is known. */
function report(t: TestContext, { file, title, outcome, reason }: InnerResult): Promise<void> {
  return t.test(`${file}: ${title}`, { skip: outcome === "skipped" && (reason ?? true) }, () => {
    // The stack that matters is the one from inside.
    if (outcome === "failed") throw Object.assign(new Error(reason), { stack: reason });
  });
}

test("in the virtual machine", { skip: vmSkip() }, async (t) => {
  const reported: Promise<void>[] = [];
  const seen = new Set<string>();
  let line = "";
  const { status, output, durationMs } = await runInVm({
    argv: ["node", RUNNER, CONCURRENCY, JSON.stringify(names)],
    files,
    env: { KPTS_MODES: process.env.KPTS_MODES ?? "iptables,nftables,ipvs" },
    timeoutMs: LIMIT_MS,
    onOutput(text) {
      const lines = (line + text).split("\n");
      line = lines.pop() ?? "";
      for (const result of lines.map(parseResultLine).filter((found) => found !== undefined)) {
        seen.add(result.file);
        if (!HAS_IT.test(result.reason ?? "")) reported.push(report(t, result));
      }
    },
  });
  await Promise.all(reported);
  t.diagnostic(`the machine ran for ${Math.round(durationMs / 1000)} s`);
  const tail = output.slice(-4000);
  assert.ok(status === 0 || status === 1, `the machine did not come to the end of the tests:\n${tail}`);
  if (names.length === 0) assert.deepEqual([...seen].sort(), [...files].sort(), `files without a test:\n${tail}`);
});
