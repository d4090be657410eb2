import assert from "node:assert/strict";
import { test } from "node:test";
import { cachedDataVersionTag, setFlagsFromString } from "node:v8";
import { applyEngineOptions, takeBackEngineOptions } from "./engine-options.ts";

test("options that compiled code depends on are taken back, and those that count later are set again", (t) => {
  t.after(() => {
    for (const option of ["--heap-growing-percent=0", "--allocation-site-pretenuring"]) setFlagsFromString(option);
  });
  const byDefault = cachedDataVersionTag();
  const later = ["--heap-growing-percent=60", "--no-allocation-site-pretenuring"];
  const given = ["--no-warnings", "--max-semi-space-size=4", "--initial-old-space-size=64", ...later];
  for (const option of given.slice(2)) setFlagsFromString(option);
  assert.notEqual(cachedDataVersionTag(), byDefault, "Node.js would compile its own modules again");
  takeBackEngineOptions(given);
  assert.equal(cachedDataVersionTag(), byDefault);
  applyEngineOptions(given);
  const applied = cachedDataVersionTag();
  assert.notEqual(applied, byDefault);
  for (const option of later) setFlagsFromString(option);
  assert.equal(cachedDataVersionTag(), applied);
});

test("what was not given is left alone", (t) => {
  t.after(() => setFlagsFromString("--heap-growing-percent=0"));
  setFlagsFromString("--heap-growing-percent=30");
  const before = cachedDataVersionTag();
  takeBackEngineOptions(["--no-warnings"]);
  applyEngineOptions([]);
  assert.equal(cachedDataVersionTag(), before);
});
