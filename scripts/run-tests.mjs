/**
 * `npm test [-- PATH…|--test-name-pattern=…]`: type check, lint, then all tests (or those under the paths), and a
 * closing line `N passed, N failed, N skipped`. Runs on the pinned Node.js. Files named `*.vm.test.ts`, and some others once
 * more, run in the virtual machine of test/vm. A test that needs the kernel and was skipped although the kernel can run it
 * counts as failed.
 */
import { spawn } from "node:child_process";
import { globSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { run } from "node:test";
import { fileURLToPath } from "node:url";
import { missingForTopology } from "../src/demo/kernel-capabilities.ts";
import { ensureNextNode, NEXT_NODE } from "./next-node.mjs";
import report from "./test-report.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const TIMEOUT_MS = 300_000;
/** The virtual machine, whose tests this file reports: alone, after all others. */
const VM_TEST = join(root, "test/vm/vm.test.ts");
/** It has limits of its own, and perhaps to wait for its turn. */
const VM_TIMEOUT_MS = 7_200_000;

const checks = {
  "type check": ["node_modules/typescript/bin/tsc", "-p", "tsconfig.json"],
  lint: ["node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings", "."],
};

/** Runs a check; prints its output only when it fails. @returns whether it passed. */
function check(title, args, node = process.execPath) {
  return new Promise((done) => {
    const child = spawn(node, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += text));
    child.on("close", (status) => {
      console.log(status === 0 ? `✓ ${title}` : `✗ ${title}\n${output}`);
      done(status === 0);
    });
  });
}

/** Building the image takes the longest, and most others say more about what is wrong. */
const isLast = (file) => Number(file === join(root, "test/deploy/image.test.ts"));

function testFiles(paths) {
  const files = globSync(["src/**/*.test.ts", "test/**/*.test.ts", "bench/*.test.ts"], { cwd: root }).map((file) =>
    join(root, file),
  );
  const wanted = paths.map((path) => resolve(root, path));
  return files
    .filter((file) => paths.length === 0 || wanted.some((path) => file === path || file.startsWith(path + sep)))
    .sort((one, other) => isLast(one) - isLast(other) || (one < other ? -1 : 1));
}

const args = process.argv.slice(2).filter((arg) => arg !== "--");
const patterns = args
  .filter((arg) => arg.startsWith("--test-name-pattern="))
  .map((arg) => arg.slice(arg.indexOf("=") + 1));
const paths = args.filter((arg) => !arg.startsWith("-"));
const unknown = args.filter((arg) => arg.startsWith("-") && !arg.startsWith("--test-name-pattern="));
if (unknown.length > 0) {
  console.error(
    `unknown option ${unknown.join(" ")}; known: --test-name-pattern=REGEXP, and paths under src/, test/ or bench/`,
  );
  process.exit(1);
}

const total = { passed: 0, failed: 0, skipped: 0 };
if (args.length === 0) {
  const outcomes = await Promise.all(Object.entries(checks).map(([title, words]) => check(title, words)));
  for (const passed of outcomes) total[passed ? "passed" : "failed"] += 1;
}

const files = testFiles(paths);
if (files.length === 0) {
  console.error(`no test file under ${paths.join(" ")}`);
  process.exit(1);
}
const missing = await missingForTopology();
if (missing.length > 0) console.log(`tests in network namespaces are skipped: ${missing.join("; ")}`);

const wronglySkipped = [];

/** Runs the files, prints what they do, and adds to the total. */
async function runFiles(options) {
  const stream = run({ concurrency: 2, ...options });
  stream.on("test:pass", ({ skip, name, file }) => {
    if (skip === undefined || missing.length > 0 || file === undefined) return;
    const path = relative(root, file);
    // On another architecture or distribution there cannot be one; and some tools of others are only used where they are.
    if (/^(the virtual machine is |not on this machine: )/.test(String(skip))) return;
    const isKernelTest = path.startsWith(`test${sep}`) || String(skip).startsWith("kernel");
    if (isKernelTest) wronglySkipped.push(`${path}: ${name}`);
  });
  stream.on("test:summary", ({ file, counts }) => {
    if (file !== undefined) return;
    total.passed += counts.passed;
    total.failed += counts.failed + counts.cancelled;
    total.skipped += counts.skipped + counts.todo;
  });
  for await (const text of stream.compose(report)) process.stdout.write(text);
}

const forVm = files.filter((file) => file.endsWith(".vm.test.ts"));
const onHost = files.filter((file) => !forVm.includes(file) && file !== VM_TEST);
if (onHost.length > 0) {
  const names = patterns.length > 0 && { testNamePatterns: patterns };
  await runFiles({ files: onHost, timeout: TIMEOUT_MS, ...names });
}
if (files.includes(VM_TEST) || forVm.length > 0) {
  const names = patterns.length > 0 && { KPTS_VM_NAMES: JSON.stringify(patterns) };
  const named = !files.includes(VM_TEST) && {
    KPTS_VM_FILES: JSON.stringify(forVm.map((file) => relative(root, file))),
  };
  await runFiles({ files: [VM_TEST], timeout: VM_TIMEOUT_MS, env: { ...process.env, ...names, ...named } });
}

/** The unit tests once more, on the Node.js release that comes after the pinned one. */
async function checkNextNode() {
  const title = `unit tests on Node.js ${NEXT_NODE}`;
  try {
    const units = onHost.filter((file) => relative(root, file).startsWith(`src${sep}`));
    return await check(title, ["--test", "--test-concurrency=2", ...units], ensureNextNode(root));
  } catch (error) {
    console.log(`✗ ${title}: ${error.message}`);
    return false;
  }
}
if (args.length === 0) total[(await checkNextNode()) ? "passed" : "failed"] += 1;

for (const title of wronglySkipped) console.log(`✗ skipped although this machine can run it: ${title}`);
// A suite that was skipped as a whole is not among the counted tests.
total.skipped = Math.max(0, total.skipped - wronglySkipped.length);
total.failed += wronglySkipped.length;
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed > 0 ? 1 : 0;
