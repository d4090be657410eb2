/**
 * npm's `prepare`, which runs at the end of every install in a checkout: builds dist/ if the development packages are
 * installed. Without them (`npm ci --omit=dev`) there is nothing to do: bin/kube-proxy then runs src/, whose types
 * Node.js strips. It also runs when a package is packed, after `prepack` has just built, and when bootstrap.mjs
 * installs, which builds itself.
 */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "./build.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
// The compiler alone proves nothing: it is also an optional peer of a package that the program needs.
const needed = ["typescript/bin/tsc", "@types/node/package.json"].map((path) => join(root, "node_modules", path));

const isPacked = ["pack", "publish"].includes(process.env.npm_command);
const isBuiltLater = process.env.KPTS_BUILT_LATER === "1";

if (needed.every(existsSync)) {
  if (!isPacked && !isBuiltLater) process.exitCode = (await build()) ? 0 : 1;
} else {
  console.error("not built, for the development packages are not installed: bin/kube-proxy runs the sources");
}
