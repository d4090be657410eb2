/**
 * The Node.js release after the pinned one, for testing on it as well: fetched once from the npm registry into .cache/,
 * outside node_modules so that users of the program do not download it.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

export const NEXT_NODE = "26.10.0";

/** @returns the path of its binary. @throws Error if it cannot be fetched. */
export function ensureNextNode(root) {
  const name = `node-${process.platform}-${process.arch}`;
  const prefix = join(root, ".cache", `node-${NEXT_NODE}`);
  const binary = join(prefix, "node_modules", name, "bin/node");
  if (existsSync(binary)) return binary;
  const args = ["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", prefix];
  const result = spawnSync("npm", [...args, `${name}@${NEXT_NODE}`], { cwd: root, encoding: "utf8" });
  if (!existsSync(binary)) throw new Error(`npm install ${name}@${NEXT_NODE} did not work: ${result.stderr}`);
  return binary;
}
