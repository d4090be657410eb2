/**
 * Required by each test process before anything else: in a file without suites, node:test then follows no promise.
 *
 * node:test has a hook for everything asynchronous. It finds the suite in which `test()` and `before()` are called, and the test in
 * which an error began that comes out of nowhere. Every promise pays for that: a third of the processor time of a test that
 * computes with many. Without suites there is nothing to find, and such an error still fails the file, by its exit status.
 */
const { readFileSync } = require("node:fs");
const hooks = require("node:async_hooks");
const { syncBuiltinESMExports } = require("node:module");

/** A batch makes a suite of each of its files (run-batch.ts). What cannot be read has whatever node:test likes. */
function hasSuites(path) {
  try {
    return /\b(?:describe|suite|it|runBatch)\b/.test(readFileSync(path, "utf8"));
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
  // Only now, for it keeps the function that it finds.
  const testing = require("node:test");
  // The tests of a suite would be those of the file, and what is to run before them would run at once.
  testing.describe = () => {
    throw new Error(
      "a suite in another module than the test file: say `describe` there too, untracked-promises.cjs looks for it",
    );
  };
  syncBuiltinESMExports();
}

if (!hasSuites(process.argv[1])) leaveOutHook();
