/**
 * `node scripts/build.mjs [--clean] [--no-check] [--if-older]`: compiles src/ to dist/, adds the page's files (`page-files.mjs`) and
 * the eBPF programs, bundles the program (`bundle.mjs`), keeps its compiled code (`compiled-code.mjs`), writes the manual pages, and
 * records the commit it was made from, for targets without .git: the image and the npm package. `--clean` empties dist/ first, so that
 * nothing of an older build is packed; `--no-check` skips the type check; `--if-older` builds only if a source is newer.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "./bundle.mjs";
import { keepCompiledCode } from "./compiled-code.mjs";
import { placePage } from "./page-files.mjs";
import { placeFile } from "./place-files.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/**
 * Compiles with the given Node.js.
 *
 * @param isChecked false if a type check of the sources runs at the same time.
 * @returns whether it worked; errors have been printed on standard error.
 */
export async function build(node = process.execPath, isChecked = true) {
  const started = new Date();
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const check = isChecked ? [] : ["--noCheck"];
  // Several checkers each work out what they have in common: on two processors one is as fast.
  const { status } = spawnSync(node, [compiler, "-p", "tsconfig.build.json", "--checkers", "1", ...check], {
    cwd: root,
    stdio: ["ignore", 2, "inherit"],
  });
  if (status !== 0) return false;
  for (const path of PROGRAMS) placeFile(join(root, "dist", path), readFileSync(join(root, "src", path)));
  const isBundled = await bundle();
  if (isBundled) await placePage();
  // bin/kube-proxy compares it with the sources, of which one may change during the build.
  if (isBundled) utimesSync(join(root, "dist/bundle/main.js"), started, started);
  if (!isBundled)
    console.error("not bundled, for esbuild is not installed (npm ci): starts take longer, and there is no page");
  else {
    const problem = keepCompiledCode();
    if (problem !== undefined) console.error(`compiled code is not kept, so starts take longer: ${problem}`);
  }
  if (!writeManPages(node)) return false;
  writeFileSync(BUILD_INFO, `${JSON.stringify({ commit: commit() })}\n`);
  utimesSync(BUILD_INFO, started, started);
  return true;
}

/** Written last. */
const BUILD_INFO = join(root, "dist/build-info.json");

/** The eBPF programs, as built by clang (`bpf.mjs`). */
const PROGRAMS = [4, 6].map((family) => `modes/ebpf/socket-balancer/socket${family}.o`);

/** What the program is built from. */
const SOURCES = ["src", "scripts", "package.json", "package-lock.json", "tsconfig.json", "tsconfig.build.json"];

/** {@link build}, if a source is newer than the last one. Reports that it builds. */
async function buildIfOlder(isChecked) {
  const built = existsSync(BUILD_INFO) ? statSync(BUILD_INFO).mtimeMs : 0;
  if (built > 0 && SOURCES.every((path) => newestIn(join(root, path)) <= built)) return true;
  const started = performance.now();
  console.error("building the program, which takes some seconds: a source is newer than the last build…");
  if (!(await build(process.execPath, isChecked))) return false;
  console.error(`built in ${((performance.now() - started) / 1_000).toFixed(1)} s`);
  return true;
}

/** Tests are no part of the program. As in bin/kube-proxy, folders do not count: an editor touches them for files of its own. */
function newestIn(path) {
  const stat = statSync(path);
  if (!stat.isDirectory()) return path.endsWith(".test.ts") ? 0 : stat.mtimeMs;
  if (basename(path) === "testing") return 0;
  return Math.max(0, ...readdirSync(path).map((name) => newestIn(join(path, name))));
}

/** dist/man, from the help texts; package.json names the pages. Uses the pinned Node.js, which the program needs. */
function writeManPages(node) {
  const pinned = join(root, "node_modules/.bin/node");
  const program = join(root, "scripts/man-pages.ts");
  const arguments_ = [program, join(root, "dist/man")];
  const { status } = spawnSync(existsSync(pinned) ? pinned : node, arguments_, { stdio: ["ignore", 2, "inherit"] });
  return status === 0;
}

/** COMMIT of the environment if there is no checkout (the image is built without .git), else what git says. */
function commit() {
  const given = process.env.COMMIT?.trim();
  if (given) return given;
  const head = git("rev-parse", "HEAD");
  if (head === undefined || git("rev-parse", "--show-cdup") !== "") return "unknown";
  return git("status", "--porcelain") === "" ? head : `${head}-dirty`;
}

function git(...args) {
  const { status, stdout } = spawnSync("git", args, {
    cwd: root,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return status === 0 ? stdout.trim() : undefined;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes("--clean")) rmSync(join(root, "dist"), { recursive: true, force: true });
  const isChecked = !process.argv.includes("--no-check");
  const isBuilt = process.argv.includes("--if-older") ? buildIfOlder(isChecked) : build(process.execPath, isChecked);
  process.exitCode = (await isBuilt) ? 0 : 1;
}
