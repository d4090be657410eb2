/**
 * Starts a virtual machine once and reports the result of each test in it as a test of the calling file. `KPTS_VM_FILES`
 * (JSON) replaces the usual files, `KPTS_VM_FULL=1` adds all kernel tests, `KPTS_VM_NAMES` (JSON) selects tests by name.
 */
import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { type TestContext, test } from "node:test";
import { type InnerResult, parseResultLine } from "./inner-result.ts";
import { CHECKOUT, MACHINES, type MachineName, runInVms } from "./run-in-vm.ts";
import { FLOW_MODES, shareFiles, vmFiles } from "./vm-files.ts";

const RUNNER = "testkit/vm/guest/run-test-files.ts";
const SEED = process.env.KPTS_PROPERTY_SEED;
const isFull = process.env.KPTS_VM_FULL === "1";
const LIMIT_MS = isFull ? 5_400_000 : 2_400_000;
/** The clients and servers of a flow test are enough processes for two processors. */
const CONCURRENCY = "1";

const isUsual = !isFull && process.env.KPTS_MODES === undefined && process.env.KPTS_VM_FILES === undefined;

function listFrom(name: string): string[] | undefined {
  const text = process.env[name];
  return text === undefined ? undefined : (JSON.parse(text) as string[]);
}

const names = listFrom("KPTS_VM_NAMES") ?? [];

/** Tests of a kernel without a feature: they are for the host. */
const HAS_IT = /^this one has /;

/** Registers a test whose outcome is known. */
function report(t: TestContext, { file, title, outcome, reason }: InnerResult): Promise<void> {
  return t.test(`${file}: ${title}`, { skip: outcome === "skipped" && (reason ?? true) }, () => {
    // The stack that matters is the one from inside.
    if (outcome === "failed") throw Object.assign(new Error(reason), { stack: reason });
  });
}

/** How long each file took, from the end of the previous one; they run one after the other. */
class FileTimes {
  readonly #seconds = new Map<string, number>();
  #last = performance.now();

  note(file: string): void {
    const now = performance.now();
    this.#seconds.set(file, (this.#seconds.get(file) ?? 0) + (now - this.#last) / 1000);
    this.#last = now;
  }

  toString(): string {
    return Array.from(this.#seconds, ([file, seconds]) => `${file} ${Math.round(seconds)} s`).join(", ");
  }
}

/** Registers the machine's run as a test. */
export function testInMachine(machine: MachineName): void {
  test(`in the virtual machine ${machine}`, { skip: MACHINES[machine].skip() }, (t) => runTests(t, machine));
}

/** User-mode Linux has one processor, and keeps it busy. */
const machinesAtOnce = (machine: MachineName) => (machine === "uml" ? Math.min(2, availableParallelism()) : 1);

async function runTests(t: TestContext, machine: MachineName): Promise<void> {
  const files = listFrom("KPTS_VM_FILES") ?? vmFiles(CHECKOUT, machine, isFull);
  const reported: Promise<void>[] = [];
  const seen = new Set<string>();
  const shares = shareFiles(files, machinesAtOnce(machine)).map((share) => ({ share, times: new FileTimes() }));
  const results = await runInVms(
    shares.map(({ share, times }) => ({
      machine,
      argv: ["node", RUNNER, CONCURRENCY, JSON.stringify(names)],
      files: share,
      env: {
        KPTS_MODES: process.env.KPTS_MODES ?? FLOW_MODES[machine],
        ...(SEED !== undefined && { KPTS_PROPERTY_SEED: SEED }),
        ...(isUsual && { KPTS_HOST_MODES: "iptables,nftables,userspace" }),
      },
      timeoutMs: LIMIT_MS,
      onOutput: resultReader((result) => {
        seen.add(result.file);
        times.note(result.file);
        if (!HAS_IT.test(result.reason ?? "")) reported.push(report(t, result));
      }),
    })),
  );
  await Promise.all(reported);
  for (const [index, { output, status, durationMs }] of results.entries()) {
    t.diagnostic(`the machine ran for ${Math.round(durationMs / 1000)} s: ${shares[index]?.times}`);
    const tail = output.slice(-4000);
    assert.ok(status === 0 || status === 1, `the machine did not come to the end of the tests:\n${tail}`);
  }
  if (names.length > 0) return;
  const tail = results.map(({ output }) => output.slice(-2000)).join("\n");
  assert.deepEqual([...seen].sort(), [...files].sort(), `files without a test:\n${tail}`);
}

/** Finds results in output that arrives in pieces. */
function resultReader(onResult: (result: InnerResult) => void): (text: string) => void {
  let line = "";
  return (text) => {
    const lines = (line + text).split("\n");
    line = lines.pop() ?? "";
    for (const result of lines.map(parseResultLine)) if (result !== undefined) onResult(result);
  };
}
