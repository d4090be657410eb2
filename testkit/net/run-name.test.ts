import assert from "node:assert/strict";
import { test } from "node:test";
import { isLeftover, newRunName, processStartTime } from "./run-name.ts";

test("a name of a living run is no leftover, and each name is new", () => {
  const name = newRunName("demo");
  assert.equal(isLeftover(name), false);
  assert.equal(isLeftover(`${name}-node-a`), false);
  assert.notEqual(newRunName("demo"), name);
});

test("a name whose process is gone, or whose PID is another process's by now, is a leftover", () => {
  assert.equal(
    isLeftover("kpts-demo-77.100-1-node-a", () => undefined),
    true,
  );
  assert.equal(
    isLeftover("kpts-demo-77.100-1-node-a", () => "200"),
    true,
  );
  assert.equal(
    isLeftover("kpts-demo-77.100-1-node-a", () => "100"),
    false,
  );
});

test("names of other makers are never leftovers", () => {
  for (const name of ["cni-1234", "kpts-demo-77", "kpts-lead-77-x", "my-kpts-demo-77.100-1"]) {
    assert.equal(
      isLeftover(name, () => undefined),
      false,
      name,
    );
  }
});

test("the start time of a process is a number, and there is none for a PID that is not in use", () => {
  assert.match(processStartTime(process.pid) ?? "", /^\d+$/);
  assert.equal(processStartTime(2 ** 22 + 1), undefined);
});

test("a label that could not be told from the rest of the name is refused", () => {
  assert.throws(() => newRunName("a-b"), TypeError);
});
