/**
 * Required by each test process before anything else: node:test then follows no promise.
 *
 * node:test has a hook for everything asynchronous, so that an error that comes out of nowhere fails the test in which it began.
 * Every promise pays for that: a third of the processor time of a test that computes with many. Without the hook such an error still
 * fails the file, by its exit status. The other thing that the hook does, to find the suite in which `test()` is called, is needed
 * only where a suite waits before it: by `run-batch.ts`, which switches the hook on.
 */
const hooks = require("node:async_hooks");
const { createHook } = hooks;

hooks.createHook = (callbacks) => {
  const hook = createHook(callbacks);
  if (!String(callbacks.init).includes("testResources")) return hook;
  globalThis[Symbol.for("kpts.testHook")] = hook;
  const untouched = { enable: () => untouched, disable: () => untouched };
  return untouched;
};
