/**
 * `node --expose-internals scripts/strip-types.cjs [GLOB]`: strips the types of all TypeScript once, and leaves the
 * result in Node.js's compile cache, NODE_COMPILE_CACHE. Otherwise each test process starts a WebAssembly program for
 * at least its own file: 0.1 s of processor time, in 140 processes, and more if several load the same new file at once.
 *
 * Code is compiled by the processes that run it: what they leave in the cache contains the functions that they needed.
 */
const { globSync, readFileSync } = require("node:fs");
const { dirname, resolve } = require("node:path");
const { pathToFileURL } = require("node:url");
// The pinned Node.js' internal function, which no public one replaces: `module.stripTypeScriptTypes` does not use the cache.
const { stripTypeScriptModuleTypes } = require("internal/modules/typescript");

const root = dirname(__dirname);
const pattern = process.argv[2] ?? "{src,test,testkit,demo,bench}/**/*.ts";

for (const path of globSync(pattern, { cwd: root })) {
  const file = resolve(root, path);
  try {
    stripTypeScriptModuleTypes(readFileSync(file, "utf8"), pathToFileURL(file).href);
  } catch {
    // What cannot be stripped is reported by the test that loads it, and by the type check.
  }
}
