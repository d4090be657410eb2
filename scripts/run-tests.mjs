/**
 * `npm test [-- --tier=TIER,…] [PATH…] [--test-name-pattern=…]`, and a closing line `N passed, N failed, N skipped`. Runs on
 * the pinned Node.js. With paths it runs what is below them, and builds and installs only what that needs (test-needs.mjs). Without,
 * it runs tiers:
 *
 * - `host` (the default): type check, lint, unit tests, conformance, and what this machine's own kernel does: flows and faults.
 * - `package` (`npm run test:package`): what is around the program: the npm package as another project installs it, the demo,
 *   the page in a browser, a mode that is added, the bench and the soak test themselves, load that takes a minute.
 * - `nobody`, beside `host`: the unit tests once more as another user, without privilege.
 * - `vm` (`npm run test:vm`): what needs another kernel, in user-mode Linux (testkit/vm), and Windows programs under Wine.
 * - `all` (`npm run test:all`): these, and two more kernels in qemu, the image, long histories, the next Node.js, other places
 *   (test-places.mjs), mutants.
 *
 * A test that needs the kernel and was skipped although the kernel can run it counts as failed.
 */
import { spawn } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { run } from "node:test";
import { fileURLToPath } from "node:url";
import { makeBatches, partition } from "../testkit/batches/make-batches.ts";
import { TEST_ENGINE } from "../testkit/batches/test-engine.ts";
import { Sources } from "../testkit/needs/reach.ts";
import { UNPRIVILEGED } from "../testkit/support/unprivileged.ts";
import { endHungTests } from "./hung-tests.mjs";
import { ensureNextNode, NEXT_NODE } from "./next-node.mjs";
import { allTestFiles, filesBelow, meant } from "./test-files.mjs";
import { build, needsKernel, needsOf, provide } from "./test-needs.mjs";
import report, { closingLine, failuresAgain } from "./test-report.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** For a file, and for a batch of files that share a process. */
const TIMEOUT_MS = 1_200_000;
/** The virtual machines, whose inner tests these files report. */
const UML_TEST = join(root, "testkit/vm/uml.test.ts");
const QEMU_TESTS = ["qemu", "qemu-6.12"].map((name) => join(root, `testkit/vm/${name}.test.ts`));
/** They have their own limits, and may have to wait for their turn. */
const VM_TIMEOUT_MS = 7_200_000;
/** Building the image, and a release twice, takes longer than everything else on the host. */
const BUILD_TESTS = ["image", "operator-evening", "release-files"].map((name) =>
  join(root, `test/deploy/${name}.test.ts`),
);
/** Wine and its dependencies are 1 GB, which it installs itself while other tests run. */
const WINE_TEST = join(root, "test/windows/wine.test.ts");
/** Tier `package`: files and folders. A program change that breaks one of these nearly always breaks a test of tier `host`, too. */
const AROUND = [
  "bench",
  "demo/run-demo.test.ts",
  "test/kernel/flows/tcp-load.test.ts",
  "test/apiserver/soak.test.ts",
  "test/dataplane/toy-mode.test.ts",
  "test/deploy/package.test.ts",
  "test/deploy/bytecode.test.ts",
  "test/page/browser.test.ts",
  "test/page/site-browser.test.ts",
].map((path) => join(root, path));
/** The factor by which tier `all` increases the number of histories in property tests. */
const LONG_HISTORIES = "10";
const TIERS = ["host", "package", "vm", "nobody", "all"];

/** One checker: several each work out what they have in common, and take 15 instead of 9 s of processor time. */
const checks = {
  "type check": ["node_modules/typescript/bin/tsc", "-p", "tsconfig.json", "--checkers", "1"],
  "type check of the page": ["node_modules/typescript/bin/tsc", "-p", "tsconfig.page.json", "--checkers", "1"],
  lint: ["node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings", "."],
};

/**
 * Strips the types of all sources once, while the checks run. Otherwise each test process does it for what it loads.
 * @param env says where the compile cache is.
 */
function stripTypes(env) {
  return new Promise((done) => {
    const args = ["--expose-internals", "scripts/strip-types.cjs"];
    const child = spawn(process.execPath, args, { cwd: root, stdio: "ignore", env });
    child.on("close", done);
    child.on("error", done);
  });
}

/** Runs a check; prints its output only if it fails. @returns whether it passed. */
function check(title, args, node = process.execPath, wrapper = []) {
  return new Promise((done) => {
    const [program, ...words] = [...wrapper, node, ...args];
    const child = spawn(program, words, { cwd: root, stdio: ["ignore", "pipe", "pipe"], env: environment });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += text));
    child.on("close", (status) => {
      console.log(status === 0 ? `✓ ${title}` : `✗ ${title}\n${output}`);
      if (status !== 0) failures.push({ title, text: output });
      done(status === 0);
    });
  });
}

/** Loads the program's modes, which takes longer than most unit tests. */
async function missingForKernel() {
  const { missingForTopology } = await import("../testkit/net/kernel-capabilities.ts");
  return await missingForTopology();
}

/** Two processors have work for five: most tests wait half of their time for a kernel, a clock or another process. */
const CONCURRENCY = 5;
/** Those that wait longest, up to a minute: started first, they end with the others. */
const LONG = [
  "test/windows/wine.test.ts",
  "test/apiserver/",
  "test/attack/",
  "src/agent/cluster/manifests/",
  "test/kernel/flows/tcp-load.test.ts",
  "demo/run-demo.test.ts",
  "test/deploy/package.test.ts",
  "test/kernel/flows/",
].map((path) => join(root, path));

/** Most others say more about a fault than the image does: it is last. */
function turn(file) {
  if (BUILD_TESTS.includes(file)) return 2;
  return LONG.some((path) => file.startsWith(path)) ? 0 : 1;
}

function testFiles(paths) {
  const files = allTestFiles(root);
  const below = paths.map((path) => meant(root, path));
  const named = paths.length === 0 ? files : filesBelow(files, below);
  return named.sort((one, other) => turn(one) - turn(other) || (one < other ? -1 : 1));
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
if (tiers.has("nobody") && !tiers.has("host")) {
  console.error("--tier=nobody goes with host: --tier=host,nobody");
  process.exit(1);
}
if (named !== undefined && paths.length > 0) {
  console.error("either --tier or paths");
  process.exit(1);
}
const isAll = tiers.has("all");
const runsHost = isAll || tiers.has("host");
/** Everything requested by path, or what the tiers contain. */
const isWanted = (file) => {
  if (paths.length > 0) return true;
  if (QEMU_TESTS.includes(file) || BUILD_TESTS.includes(file)) return isAll;
  if (file === UML_TEST || file === WINE_TEST) return isAll || tiers.has("vm");
  if (AROUND.some((path) => file === path || file.startsWith(path + sep))) return isAll || tiers.has("package");
  return runsHost && !file.endsWith(".vm.test.ts");
};

const environment = {
  // A test process spends half its time compiling what another one has already compiled.
  NODE_COMPILE_CACHE: join(root, ".cache", "compiled"),
  ...process.env,
};

const total = { passed: 0, failed: 0, skipped: 0 };
/** Test files, of which those in batches are reported one by one. */
const progress = { done: 0, all: 0, said: 0 };
const PROGRESS_MS = 10_000;
setInterval(() => {
  if (progress.done === progress.said) return;
  progress.said = progress.done;
  console.log(`${progress.done} of ${progress.all} files`);
}, PROGRESS_MS).unref();

/** Repeated at the end of the output. */
const failures = [];
const isWhole = paths.length === 0 && patterns.length === 0;
const isCheckedHere = isWhole && runsHost;
// The longest of the first steps, and half of it is sequential. If there is a build already, checking the rest takes a second.
const isChecked = !isCheckedHere || existsSync(join(root, "dist", ".tsbuildinfo"));
const files = testFiles(paths).filter(isWanted);
if (files.length === 0) {
  console.error(`no test file under ${paths.join(" ")}`);
  process.exit(1);
}
const needs = paths.length > 0 ? needsOf(root, files) : undefined;
const built = needs === undefined ? build(root, isChecked ? [] : ["--no-check"]) : provide(root, needs);
const stripped = isCheckedHere ? stripTypes(environment) : undefined;
if (isCheckedHere) {
  const outcomes = await Promise.all(Object.entries(checks).map(([title, words]) => check(title, words)));
  for (const passed of outcomes) total[passed ? "passed" : "failed"] += 1;
}

const [isBuilt] = await Promise.all([built, stripped]);
const missing = needs === undefined || needsKernel(needs) ? await missingForKernel() : [];
if (missing.length > 0) console.log(`tests in network namespaces are skipped: ${missing.join("; ")}`);

const wronglySkipped = [];
if (needs === undefined || needsKernel(needs)) environment.KPTS_MISSING ??= JSON.stringify(missing);
// While a developer tries a single test, the previous program may do.
if (!isBuilt && isWhole) {
  console.log("✗ build: see the errors above; what starts the program has the one of an earlier build, if any");
  total.failed += 1;
}

/**
 * Runs the files, prints their results, and adds to the total.
 *
 * @param batches those of the files that run several test files, by path.
 * @returns the files of batches that were not reported because their batch's process had ended.
 */
async function runFiles({ batches = new Map(), ...options }) {
  const stream = run({ concurrency: CONCURRENCY, execArgv: TEST_ENGINE, ...options });
  const unreported = new Map([...batches].map(([path, { files }]) => [path, new Set(files)]));
  progress.all += options.files.length - batches.size + [...batches.values()].flatMap(({ files }) => files).length;
  const note = ({ nesting, name, file, entryFile }) => {
    if (nesting === 0 && unreported.get(entryFile ?? file)?.delete(name)) progress.done += 1;
  };
  stream.on("test:pass", (data) => {
    note(data);
    const { skip, name, file } = data;
    if (skip === undefined || missing.length > 0 || file === undefined) return;
    const path = relative(root, file);
    // It cannot exist on another architecture or distribution; and some external tools are only used where they exist.
    if (/^(the virtual machine is |not on this machine: )/.test(String(skip))) return;
    if (String(skip).startsWith("no program ")) {
      // Elsewhere a tool may be missing; where changes are judged it may not.
      if (process.env.KPTS_STRICT === "1") wronglySkipped.push(`${path}: ${name}`);
      return;
    }
    const isKernelTest = path.startsWith(`test${sep}`) || String(skip).startsWith("kernel");
    if (isKernelTest) wronglySkipped.push(`${path}: ${name}`);
  });
  stream.on("test:fail", (data) => {
    note(data);
    // node:test does not count a suite that failed to load.
    const { type, error } = data.details;
    if (type === "suite" && error?.failureType !== "subtestsFailed") total.failed += 1;
  });
  stream.on("test:summary", ({ file, counts }) => {
    if (file !== undefined && !batches.has(file)) progress.done += 1;
    if (file !== undefined) return;
    total.passed += counts.passed;
    total.failed += counts.failed + counts.cancelled;
    total.skipped += counts.skipped + counts.todo;
  });
  const stopWatching = endHungTests(options.timeout, (words) => words.some((word) => options.files.includes(word)));
  for await (const text of report(stream, batches, failures)) process.stdout.write(text);
  stopWatching();
  return [...unreported].flatMap(([path, files]) => [...files].map((file) => ({ file, batch: batches.get(path) })));
}

const BATCHES = join(".cache", "batches", String(process.pid));
/** Removed on exit, however it happens. */
process.on("exit", () => rmSync(join(root, BATCHES), { recursive: true, force: true }));

/** Batches for unit tests that may share a process. @param env for all of them. */
function batchesOf(title, files, env = {}) {
  const made = makeBatches(root, join(BATCHES, title.replaceAll(/\W+/g, "-")), files, { env });
  return made.map(({ path, files: part }, index) => [path, { title: `${title} ${index + 1}`, files: part, env }]);
}

const forVm = files.filter((file) => file.endsWith(".vm.test.ts"));
const machines = files.filter((file) => file === UML_TEST || QEMU_TESTS.includes(file));
const onHost = files.filter((file) => !forVm.includes(file) && !machines.includes(file));
const inFolder = (folder) => (file) => file.startsWith(folder + sep);

/** Folders most of whose files take less time than a process takes to start. */
const SHARING = ["testkit", "demo", "test/cli", "test/docs", "test/explain", "test/trace"].map(inFolder);
const mayShare = (file) => SHARING.some((isIn) => isIn(file));
const isUnit = inFolder("src");

/** The module that reads KPTS_YIELD. */
const YIELDER = join("src", "async", "testing", "test-yielder.ts");

/** A single requested file, or test names that files in a batch might share, need no batches. */
function hostBatches() {
  if (patterns.length > 0 || onHost.length < 10) return [];
  const quick = onHost.filter((file) => turn(file) === 1).map((file) => relative(root, file));
  const units = partition(root, quick.filter(isUnit)).shared;
  const others = partition(root, quick.filter(mayShare)).shared;
  const batches = [...batchesOf("unit tests", units), ...batchesOf("other tests", others)];
  if (!isWhole) return batches;
  // The tests whose computations yield only when a test says so, with the other setting. For others it would be the same test.
  const sources = new Sources(root);
  const planned = units.filter(inFolder(join("src", "dataplane")));
  const giving = planned.filter((file) => sources.reachedFrom(file).has(YIELDER));
  return [...batches, ...batchesOf("KPTS_YIELD=always", giving, { KPTS_YIELD: "always" })];
}

/** The unit tests as node:test is given them, for the next Node.js and another user. */
let unitFiles = [];

async function runHost() {
  const env = { ...environment, ...(isAll && { KPTS_PROPERTY_SCALE: LONG_HISTORIES }) };
  // The fuzz of proofs takes an hour alone, and more beside others.
  const timeout = TIMEOUT_MS * (isAll ? 8 : 1);
  const batches = new Map(hostBatches());
  const inBatches = new Set([...batches.values()].flatMap((batch) => batch.files));
  const alone = onHost.filter((file) => !inBatches.has(relative(root, file)));
  const ofUnits = [...batches].filter(([, batch]) => batch.files.every(isUnit)).map(([path]) => path);
  unitFiles = [...ofUnits, ...alone.filter((file) => isUnit(relative(root, file)))];
  // First what waits for a clock, then what needs a processor.
  const isLong = (file) => turn(file) === 0;
  const inTurn = [...alone.filter(isLong), ...batches.keys(), ...alone.filter((file) => !isLong(file))];
  const names = patterns.length > 0 && { testNamePatterns: patterns };
  const unreported = await runFiles({ files: inTurn, batches, timeout, env, ...names });
  progress.all -= unreported.length;
  for (const { file, batch } of unreported) {
    await runFiles({ files: [join(root, file)], timeout, env: { ...env, ...batch.env } });
  }
}

/** @param named the only files to run in the machine. */
async function runMachine(file, named) {
  const env = { ...environment };
  if (patterns.length > 0) env.KPTS_VM_NAMES = JSON.stringify(patterns);
  if (named !== undefined) env.KPTS_VM_FILES = JSON.stringify(named.map((path) => relative(root, path)));
  await runFiles({ files: [file], timeout: VM_TIMEOUT_MS, env });
}

if (onHost.length > 0) await runHost();
// The two machines of user-mode Linux keep two processors busy: beside them the host's tests take no less time, and miss clocks.
if (machines.includes(UML_TEST)) await runMachine(UML_TEST);
else if (forVm.length > 0) await runMachine(UML_TEST, forVm);
// Emulated processors are already slower than their clocks.
for (const file of machines.filter((file) => file !== UML_TEST)) await runMachine(file);

/** The unit tests once more, on the Node.js release after the pinned one. */
async function checkNextNode() {
  const title = `unit tests on Node.js ${NEXT_NODE}`;
  try {
    return await check(title, ["--test", "--test-concurrency=2", ...unitFiles], ensureNextNode(root));
  } catch (error) {
    console.log(`✗ ${title}: ${error.message}`);
    return false;
  }
}
/** The unit tests once more, as another user (testkit/support/unprivileged.ts). Without root it is the one who runs them. */
async function checkNobody() {
  const once = unitFiles.filter((file) => !file.includes("KPTS"));
  const tests = ["--test", "--test-concurrency=3", ...TEST_ENGINE, ...once];
  return await check("unit tests as nobody", tests, process.execPath, UNPRIVILEGED);
}
if (isWhole && (isAll || tiers.has("nobody")) && unitFiles.length > 0 && process.getuid?.() === 0)
  total[(await checkNobody()) ? "passed" : "failed"] += 1;
if (isWhole && isAll) {
  total[(await check("the tests in other places", ["scripts/test-places.mjs"])) ? "passed" : "failed"] += 1;
  total[(await checkNextNode()) ? "passed" : "failed"] += 1;
  total[(await check("mutants of random lines", ["test/mutation/run.ts"])) ? "passed" : "failed"] += 1;
}

process.stdout.write(failuresAgain(failures));
for (const title of wronglySkipped) console.log(`✗ skipped although this machine can run it: ${title}`);
// A suite that was skipped as a whole is not among the counted tests.
total.skipped = Math.max(0, total.skipped - wronglySkipped.length);
total.failed += wronglySkipped.length;
console.log(closingLine(total));
process.exitCode = total.failed > 0 ? 1 : 0;
