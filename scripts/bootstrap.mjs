/**
 * `node scripts/bootstrap.mjs start|test|watch|bench|soak|attack|mutate [ARGUMENT…]`: from a bare checkout to a running command. Runs on the
 * machine's own Node.js (18 or newer) before anything is installed, so it has no dependencies; the command itself runs
 * on the pinned Node.js of node_modules.
 */
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "./build.mjs";
import { ensureNodePackages } from "./node-packages.mjs";
import { beginSystemTools } from "./system-tools.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** What the pinned Node.js runs for each command, below the checkout. The tests build beside the type check, the demo after reading its arguments. */
const entries = {
  start: { script: "demo/main.ts", args: [], buildsItself: true },
  test: { script: "scripts/run-tests.mjs", args: [], buildsItself: true },
  watch: {
    script: "scripts/watch-tests.mjs",
    args: [],
    buildsItself: true,
    usage: " -- FILE|FOLDER… [--test-name-pattern=REGEXP]: runs tests again whenever a file changes that they import",
  },
  bench: { script: "bench/run.ts", args: [], mustBuild: false },
  attack: {
    script: "test/attack/run.ts",
    args: [],
    mustBuild: true,
    usage: ": does to a fresh build what once stopped it, in some minutes; no options. Needs root",
  },
  mutate: {
    script: "test/mutation/run.ts",
    args: [],
    mustBuild: true,
    usage: " -- [--lines N] [--seed N] [--under PATH] [FILE:LINE…]: breaks lines of src, and sees whether a test fails",
  },
  soak: {
    script: "test/apiserver/soak.ts",
    args: [],
    mustBuild: true,
    usage:
      " -- [--seconds N] [--seed N] [--mode nftables|iptables] [--each] [--outages SECONDS,… [--services N]]: every fault of an API server, for ten minutes. Needs root",
  },
};

/** Runs the command as a shell would: forwards signals, passes on the exit status. */
function runCommand(file, args) {
  const child = spawn(file, args, { stdio: "inherit" });
  // A child that failed to start must not be signalled: it has no process ID.
  const signal = (name) => child.pid !== undefined && child.kill(name);
  // The terminal also sends Ctrl-C to the child, which decides when to end.
  process.on("SIGINT", () => {});
  process.on("SIGTERM", () => signal("SIGTERM"));
  process.on("SIGHUP", () => signal("SIGHUP"));
  // npm ends only the shell between itself and this process, which then has another parent.
  const parent = process.ppid;
  setInterval(() => process.ppid === parent || signal("SIGTERM"), 250).unref();
  child.on("error", (error) => {
    console.error(`${file}: ${error.message}`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}

const [command = "", ...rest] = process.argv.slice(2);
const entry = entries[command];
if (entry === undefined) {
  console.error(`usage: node scripts/bootstrap.mjs ${Object.keys(entries).join("|")} [ARGUMENT…]`);
  process.exit(1);
}
if (rest.includes("--help") && entry.usage !== undefined) {
  console.log(`npm run ${command}${entry.usage}`);
  process.exit(0);
}
/** Files that are named say what they need (test-needs.mjs). */
const isByFile = command === "watch" || (command === "test" && rest.some((word) => !word.startsWith("-")));
// A test process spends half its time compiling what another one has already compiled.
if (command === "test" || command === "watch") process.env.NODE_COMPILE_CACHE ??= join(root, ".cache", "compiled");
try {
  const tools = beginSystemTools(isByFile ? [] : [rest.includes("--tier=all") ? `${command} all` : command]);
  const node = ensureNodePackages(root);
  await tools;
  if (entry.buildsItself !== true && !(await build(node)) && entry.mustBuild)
    throw new Error("the build failed: see the errors above");
  process.chdir(root);
  runCommand(node, ["--disable-sigusr1", join(root, entry.script), ...entry.args, ...rest]);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}
