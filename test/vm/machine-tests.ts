/**
 * Starts a virtual machine once and reports what each test in it did as a test of the calling file. `KPTS_VM_FILES` (JSON)
 * names other files than the usual ones, `KPTS_VM_FULL=1` adds all kernel tests, `KPTS_VM_NAMES` (JSON) picks tests by name.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type InnerResult, parseResultLine } from "./inner-result.ts";
import { CHECKOUT, MACHINES, type MachineName, runInVm } from "./run-in-vm.ts";
import { FLOW_MODES, vmFiles } from "./vm-files.ts";

const RUNNER = "test/vm/guest/run-test-files.ts";
const isFull = process.env.KPTS_VM_FULL === "1";
const LIMIT_MS = isFull ? 5_400_000 : 2_400_000;
/** The clients and servers of a flow test are processes enough for two processors. */
const CONCURRENCY = "1";

const isUsual = !isFull && process.env.KPTS_MODES === undefined && process.env.KPTS_VM_FILES === undefined;

function listFrom(name: string): string[] | undefined {
  const text = process.env[name];
  return text === undefined ? undefined : (JSON.parse(text) as string[]);
}

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

/** How long each file took, from the end of the one before it; they come one after the other. */
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

async function runTests(t: TestContext, machine: MachineName): Promise<void> {
  const files = listFrom("KPTS_VM_FILES") ?? vmFiles(CHECKOUT, machine, isFull);
  const reported: Promise<void>[] = [];
  const seen = new Set<string>();
  const times = new FileTimes();
  let line = "";
  const { status, output, durationMs } = await runInVm({
    machine,
    argv: ["node", RUNNER, CONCURRENCY, JSON.stringify(names)],
    files,
    env: {
      KPTS_MODES: process.env.KPTS_MODES ?? FLOW_MODES[machine],
      ...(isUsual && { KPTS_HOST_MODES: "iptables,nftables,userspace" }),
    },
    timeoutMs: LIMIT_MS,
    onOutput(text) {
      const lines = (line + text).split("\n");
      line = lines.pop() ?? "";
      for (const result of lines.map(parseResultLine).filter((found) => found !== undefined)) {
        seen.add(result.file);
        times.note(result.file);
        if (!HAS_IT.test(result.reason ?? "")) reported.push(report(t, result));
      }
    },
  });
  await Promise.all(reported);
  t.diagnostic(`the machine ran for ${Math.round(durationMs / 1000)} s: ${times}`);
  const tail = output.slice(-4000);
  assert.ok(status === 0 || status === 1, `the machine did not come to the end of the tests:\n${tail}`);
  if (names.length === 0) assert.deepEqual([...seen].sort(), [...files].sort(), `files without a test:\n${tail}`);
}
