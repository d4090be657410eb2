import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { differences, processState } from "./left-behind.ts";
import { makeBatches, partition, portions } from "./make-batches.ts";
import { needsOwnProcess } from "./own-process.ts";

/** What the runner does with batches: node:test runs them, and the reporter separates them again. */
const RUN = `
import { run } from "node:test";
import report, { failuresAgain } from ${JSON.stringify(new URL("../../scripts/test-report.mjs", import.meta.url).href)};
import { TEST_ENGINE } from ${JSON.stringify(new URL("test-engine.ts", import.meta.url).href)};
const batches = new Map(process.argv.slice(2).map((path, index) => [path, { title: "batch " + (index + 1) }]));
const failures = [];
const events = run({ files: [...batches.keys()], execArgv: TEST_ENGINE });
for await (const text of report(events, batches, failures)) process.stdout.write(text);
process.stdout.write("again\\n" + failuresAgain(failures));
`;

const imports = 'import { describe, test } from "node:test";\n';
const files: Readonly<Record<string, string>> = {
  "a.test.ts":
    'describe("all", () => { test("is well", () => {}); });\ntest("later", { skip: "no time" }, () => {});\n',
  "b.test.ts":
    'describe("some", () => { test("is wrong", () => { throw new Error("so wrong" + "\\nmore".repeat(1_000)); }); });\n',
  "c.test.ts": 'test("leaves", () => { process.env.KPTS_LEFT = "1"; setInterval(() => {}, 1000); });\n',
  "d.test.ts": 'throw new Error("not loaded");\n',
  "e.test.ts": 'test("hangs", () => new Promise((resolve) => setTimeout(resolve, 600_000)));\n',
  "f.test.ts": 'test("ends all", () => process.kill(process.pid, "SIGKILL"));\n',
  "g.test.ts": 'test("is never begun", () => {});\n',
};

test("what files of a batch do is told by file: passes, failures, and what they leave behind", (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-batches-"));
  t.after(() => rmSync(root, { recursive: true }));
  writeFileSync(join(root, "package.json"), '{ "type": "module" }');
  for (const [name, text] of Object.entries(files)) writeFileSync(join(root, name), imports + text);
  const names = Object.keys(files);
  const options = { fileLimitMs: 2_000, patienceMs: 100 };
  const batches = [
    ...makeBatches(root, "one", names.slice(0, 5), options),
    ...makeBatches(root, "two", names.slice(5), options),
  ];
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  writeFileSync(join(root, "run.mjs"), RUN);
  const args = [join(root, "run.mjs"), ...batches.map(({ path }) => path)];
  const told = stripVTControlCharacters(execFileSync(process.execPath, args, { cwd: root, env, encoding: "utf8" }));
  const [first = "", again = ""] = told.split("\nagain\n");
  const lines = first.split("\n").filter((line) => /^[✓✗-]/.test(line));
  const expected = [
    /^- a\.test\.ts: later skipped: no time$/,
    /^✓ a\.test\.ts 1 passed, 1 skipped, \d+ ms$/,
    /^✗ b\.test\.ts: some › is wrong \(line 2\)$/,
    /^✓ c\.test\.ts 1 passed, \d+ ms$/,
    /^✗ c\.test\.ts leaves nothing behind in its process /,
    /^✗ d\.test\.ts /,
    /^✗ e\.test\.ts: hangs /,
    /^✗ e\.test\.ts \(line/,
    /^✗ e\.test\.ts leaves nothing behind in its process /,
    /^✗ .*: the process of batch 2 has ended; its other files follow$/,
  ];
  assert.equal(lines.length, expected.length, told);
  for (const [index, pattern] of expected.entries()) assert.match(lines[index] ?? "", pattern, told);
  const failed = lines.filter((line) => line.startsWith("✗"));
  assert.deepEqual(
    again.split("\n").filter((line) => line.startsWith("✗")),
    failed,
    "in the same order at the end",
  );
  assert.match(again, /^✗ b\.test\.ts: .*\n +Error: so wrong\n(?: +more\n){39} +… \d+ lines are above …\n/m);
  assert.match(told, /so wrong/);
  assert.match(told, /not loaded/);
  assert.match(told, /it leaves what keeps a process alive: Timeout \(2 instead of 1\); the variable KPTS_LEFT of/);
});

test("what differs between two states of a process is named", () => {
  const before = processState();
  const more = {
    ...before,
    folder: "/",
    listeners: new Map([...before.listeners, ["SIGHUP", 1]]),
    globals: new Set([...before.globals, "leaked"]),
  };
  assert.deepEqual(differences(before, before), []);
  assert.deepEqual(differences(before, more), [
    "listeners of the process for SIGHUP (1 instead of 0)",
    "the working folder /",
    "the global leaked",
  ]);
});

test("files that measure or change their process have one of their own", (t) => {
  for (const source of ["process.memoryUsage()", "process.on('SIGHUP', f)", "process.env.HOME = x", "t.mock.timers"]) {
    assert.ok(needsOwnProcess(source), source);
  }
  for (const source of ["process.env.HOME === x", "child.on('exit', f)"]) assert.ok(!needsOwnProcess(source), source);
  const root = mkdtempSync(join(tmpdir(), "kpts-batches-"));
  t.after(() => rmSync(root, { recursive: true }));
  writeFileSync(join(root, "one.ts"), "process.chdir('/')");
  writeFileSync(join(root, "two.ts"), "");
  assert.deepEqual(partition(root, ["one.ts", "two.ts"]), { shared: ["two.ts"], alone: ["one.ts"] });
});

test("portions are few, nearly equal, and have every item once and in its order", () => {
  assert.deepEqual(portions([1, 2, 3, 4, 5], 2), [[1, 2], [3], [4, 5]]);
  assert.deepEqual(portions([], 2), []);
});
