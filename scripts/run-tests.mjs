/**
 * `npm test [-- --tier=TIER,…] [PATH…] [--test-name-pattern=…]`, and a closing line `N passed, N failed, N skipped`. Runs on
 * the pinned Node.js. Without paths it runs tiers:
 *
 * - `host` (the default): type check, lint, and the tests of this machine's own kernel.
 * - `vm` (`npm run test:vm`): what needs another kernel, in user-mode Linux (testkit/vm).
 * - `all` (`npm run test:all`): both, and the second kernel in qemu, the image, long histories, the next Node.js.
 *
 * A test that needs the kernel and was skipped although the kernel can run it counts as failed.
 */
import { spawn } from "node:child_process";
import { globSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { run } from "node:test";
import { fileURLToPath } from "node:url";
import { missingForTopology } from "../testkit/net/kernel-capabilities.ts";
import { ensureNextNode, NEXT_NODE } from "./next-node.mjs";
import report from "./test-report.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const TIMEOUT_MS = 300_000;
/** The virtual machines, whose tests these files report: alone, after all others. */
const UML_TEST = join(root, "testkit/vm/uml.test.ts");
const QEMU_TEST = join(root, "testkit/vm/qemu.test.ts");
/** They have limits of their own, and perhaps to wait for their turn. */
const VM_TIMEOUT_MS = 7_200_000;
/** Building the image takes longer than everything else on the host. */
const IMAGE_TEST = join(root, "test/deploy/image.test.ts");
/** How many times as many histories the property tests run in tier `all`. */
const LONG_HISTORIES = "10";
const TIERS = ["host", "vm", "all"];

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

/** Two processors have work for four: most tests wait half of their time for a kernel, a clock or another process. */
const CONCURRENCY = 4;
/** Those that wait longest, up to a minute: begun first, they are done when the others are. */
const LONG = [
  "test/apiserver/",
  "test/attack/",
  "src/cluster/manifests/",
  "src/relay/tcp-load.test.ts",
  "demo/run-demo.test.ts",
].map((path) => join(root, path));

/** Most others say more about what is wrong than the image does: it is last. */
function turn(file) {
  if (file === IMAGE_TEST) return 2;
  return LONG.some((path) => file.startsWith(path)) ? 0 : 1;
}

function testFiles(paths) {
  const files = globSync(["{src,test,testkit,demo}/**/*.test.ts", "bench/*.test.ts"], { cwd: root }).map((file) =>
    join(root, file),
  );
  const wanted = paths.map((path) => resolve(root, path));
  return files
    .filter((file) => paths.length === 0 || wanted.some((path) => file === path || file.startsWith(path + sep)))
    .sort((one, other) => turn(one) - turn(other) || (one < other ? -1 : 1));
}

const args = process.argv.slice(2).filter((arg) => arg !== "--");
const patterns = args
  .filter((arg) => arg.startsWith("--test-name-pattern="))
  .map((arg) => arg.slice(arg.indexOf("=") + 1));
const paths = args.filter((arg) => !arg.startsWith("-"));
const named = args.find((arg) => arg.startsWith("--tier="))?.slice("--tier=".length);
const tiers = new Set(named === undefined ? ["host"] : named.split(","));
const unknown = args.filter((arg) => arg.startsWith("-") && !/^--(?:test-name-pattern|tier)=/.test(arg));
if (unknown.length > 0 || [...tiers].some((tier) => !TIERS.includes(tier))) {
  console.error(
    `unknown: ${[...unknown, ...tiers].filter((word) => !TIERS.includes(word)).join(" ")}; known: --tier=${TIERS.join("|")}, ` +
      "--test-name-pattern=REGEXP, and paths under src/, test/ or bench/",
  );
  process.exit(1);
}
if (named !== undefined && paths.length > 0) {
  console.error("either --tier or paths");
  process.exit(1);
}
const isAll = tiers.has("all");
const runsHost = isAll || tiers.has("host");
/** Everything that was asked for by path, or what the tiers have. */
const isWanted = (file) => {
  if (paths.length > 0) return true;
  if (file === QEMU_TEST || file === IMAGE_TEST) return isAll;
  if (file === UML_TEST) return isAll || tiers.has("vm");
  return runsHost && !file.endsWith(".vm.test.ts");
};

const total = { passed: 0, failed: 0, skipped: 0 };
const isWhole = paths.length === 0 && patterns.length === 0;
if (isWhole && runsHost) {
  const outcomes = await Promise.all(Object.entries(checks).map(([title, words]) => check(title, words)));
  for (const passed of outcomes) total[passed ? "passed" : "failed"] += 1;
}

const files = testFiles(paths).filter(isWanted);
if (files.length === 0) {
  console.error(`no test file under ${paths.join(" ")}`);
  process.exit(1);
}
const missing = await missingForTopology();
if (missing.length > 0) console.log(`tests in network namespaces are skipped: ${missing.join("; ")}`);

const wronglySkipped = [];
/** A test process spends half of its time compiling what another has compiled before. */
const environment = { NODE_COMPILE_CACHE: join(root, ".cache", "compiled"), ...process.env };

/** Runs the files, prints what they do, and adds to the total. */
async function runFiles(options) {
  const stream = run({ concurrency: CONCURRENCY, ...options });
  stream.on("test:pass", ({ skip, name, file }) => {
    if (skip === undefined || missing.length > 0 || file === undefined) return;
    const path = relative(root, file);
    // On another architecture or distribution there cannot be one; and some tools of others are only used where they are.
    if (/^(the virtual machine is |not on this machine: )/.test(String(skip))) return;
    if (String(skip).startsWith("no program ")) {
      // Elsewhere a tool may be missing; where changes are judged it may not.
      if (process.env.KPTS_STRICT === "1") wronglySkipped.push(`${path}: ${name}`);
      return;
    }
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
const machines = files.filter((file) => file === UML_TEST || file === QEMU_TEST);
const onHost = files.filter((file) => !forVm.includes(file) && !machines.includes(file));
if (onHost.length > 0) {
  const names = patterns.length > 0 && { testNamePatterns: patterns };
  const env = { ...environment, ...(isAll && { KPTS_PROPERTY_SCALE: LONG_HISTORIES }) };
  await runFiles({ files: onHost, timeout: TIMEOUT_MS * (isAll ? 4 : 1), env, ...names });
}

/** The tests whose computations give way only when a test says so, with the other choice: once more, they take seconds. */
if (isWhole && runsHost) {
  const dataplane = onHost.filter((file) => relative(root, file).startsWith(join("src", "dataplane") + sep));
  await runFiles({ files: dataplane, timeout: TIMEOUT_MS, env: { ...environment, KPTS_YIELD: "always" } });
}

/** @param named the only files to run in the machine. */
async function runMachine(file, named) {
  const env = { ...environment };
  if (patterns.length > 0) env.KPTS_VM_NAMES = JSON.stringify(patterns);
  if (named !== undefined) env.KPTS_VM_FILES = JSON.stringify(named.map((path) => relative(root, path)));
  await runFiles({ files: [file], timeout: VM_TIMEOUT_MS, env });
}
for (const file of machines) await runMachine(file);
if (forVm.length > 0 && !machines.includes(UML_TEST)) await runMachine(UML_TEST, forVm);

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
if (isWhole && isAll) total[(await checkNextNode()) ? "passed" : "failed"] += 1;

for (const title of wronglySkipped) console.log(`✗ skipped although this machine can run it: ${title}`);
// A suite that was skipped as a whole is not among the counted tests.
total.skipped = Math.max(0, total.skipped - wronglySkipped.length);
total.failed += wronglySkipped.length;
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed > 0 ? 1 : 0;
