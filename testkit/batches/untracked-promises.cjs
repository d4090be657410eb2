/**
 * Required by each test process before anything else: in a file without suites, node:test then tracks no promise.
 *
 * node:test has a hook for everything asynchronous. It finds the suite in which `test()` and `before()` are called, and the
 * test that caused an uncaught error. Every promise pays for that: a third of the processor time of a test that computes
 * with many. Without suites there is nothing to find, and such an error still fails the file, by its exit status.
 */
const { readFileSync } = require("node:fs");
const hooks = require("node:async_hooks");
const { syncBuiltinESMExports } = require("node:module");
const { dirname, join } = require("node:path");

/** A batch makes a suite of each of its files (run-batch.ts). */
const SUITE = /\b(?:describe|suite|it|runBatch)\(/;

/** Whether the file, or a module that it imports, as contracts are, uses suites. An unreadable file keeps node:test's defaults. */
function hasSuites(path) {
  try {
    const text = readFileSync(path, "utf8");
    const imported = [...text.matchAll(/\bfrom "(\.[^"]+)"/g)].map(([, name]) => join(dirname(path), name));
    return SUITE.test(text) || imported.some((module) => SUITE.test(readFileSync(module, "utf8")));
  } catch {
    return true;
  }
}

function leaveOutHook() {
  const { createHook } = hooks;
  hooks.createHook = (callbacks) => {
    if (!String(callbacks.init).includes("testResources")) return createHook(callbacks);
    const none = { enable: () => none, disable: () => none };
    return none;
  };
  // Only now, because it keeps the function that it finds.
  const testing = require("node:test");
  // A suite's tests would become the file's, and its hooks would run at once.
  testing.describe = () => {
    throw new Error(
      "a suite in a module that the test file does not import itself: untracked-promises.cjs does not find it there",
    );
  };
  syncBuiltinESMExports();
}

if (!hasSuites(process.argv[1])) leaveOutHook();
