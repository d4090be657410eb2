/** Brings node_modules to the state of package-lock.json, including a Node.js binary of the pinned version. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

function readJson(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}

/** Whether npm's own record of what it installed has every package of the lock file in the locked version. */
function isInstalled(root) {
  const wanted = readJson(join(root, "package-lock.json"))?.packages;
  const present = readJson(join(root, "node_modules/.package-lock.json"))?.packages;
  if (wanted === undefined) throw new Error("package-lock.json is missing or no JSON: the checkout is not complete");
  if (present === undefined) return false;
  return Object.entries(wanted).every(([path, { version, optional }]) => {
    if (path === "") return true;
    return present[path] === undefined ? optional === true : present[path].version === version;
  });
}

function npm(root, args) {
  const result = spawnSync("npm", [...args, "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: root,
    encoding: "utf8",
    // The caller builds once everything is there (prepare.mjs).
    env: { ...process.env, KPTS_BUILT_LATER: "1" },
  });
  if (result.error !== undefined) throw new Error(`npm could not be started: ${result.error.message}`);
  return result;
}

function errorLines(result) {
  return result.stderr
    .split("\n")
    .filter((line) => line.startsWith("npm error") && !line.includes("complete log"))
    .slice(0, 12)
    .join("\n");
}

function install(root) {
  const isFresh = !existsSync(join(root, "node_modules"));
  console.error("installing packages…");
  // `npm ci` starts by deleting node_modules, which hurts a process that uses it; it is for fresh checkouts.
  if (isFresh) {
    const result = npm(root, ["ci"]);
    if (result.status === 0) return;
    // npm ci rejects a lock file without the optional packages of other platforms, which a registry mirror may lack.
    console.error(`npm ci did not work, trying npm install with the same locked versions:\n${errorLines(result)}`);
  }
  const result = npm(root, ["install", "--no-save"]);
  if (result.status !== 0) throw new Error(`npm install failed:\n${errorLines(result)}\n${result.stdout.slice(-2000)}`);
}

/** Checks the packaged Node.js: it has the version that package.json pins. */
function checkPinnedNode(root, node) {
  const wanted = readJson(join(root, "package.json"))?.optionalDependencies?.[`node-linux-${process.arch}`];
  if (wanted === undefined) throw new Error(`there is no package with a Node.js for ${process.arch} in package.json`);
  const { stdout } = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (stdout?.trim() !== `v${wanted}`)
    throw new Error(`node_modules/.bin/node is not v${wanted}: remove node_modules and try again`);
}

/** koffi's binary normally comes as an optional package; otherwise its install script builds or finds one. */
function ensureKoffi(root, node) {
  const loads = () => spawnSync(node, ["-e", 'require("koffi")'], { cwd: root }).status === 0;
  if (loads()) return;
  const [file, ...args] = (readJson(join(root, "node_modules/koffi/package.json"))?.scripts?.install ?? "").split(" ");
  if (file === "node") spawnSync(node, args, { cwd: join(root, "node_modules/koffi"), stdio: "inherit" });
  if (!loads()) throw new Error("package koffi has no binary for this machine: see its install script's output above");
}

/** Installs what is missing. @returns the path of the pinned Node.js. @throws Error that says what to do. */
export function ensureNodePackages(root) {
  const node = join(root, "node_modules/.bin/node");
  // npm's record has the version, so an installed one need not be asked: that is a tenth of a second before each test.
  if (isInstalled(root) && existsSync(node)) return node;
  install(root);
  checkPinnedNode(root, node);
  ensureKoffi(root, node);
  return node;
}
