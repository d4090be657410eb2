import assert from "node:assert/strict";
import { test } from "node:test";
import { cachedDataVersionTag, setFlagsFromString } from "node:v8";
import { applyEngineOptions, takeBackEngineOptions } from "./engine-options.ts";

test("options that compiled code depends on are taken back, and the one that counts later is set again", (t) => {
  t.after(() => setFlagsFromString("--heap-growing-percent=0"));
  const byDefault = cachedDataVersionTag();
  const given = [
    "--no-warnings",
    "--heap-growing-percent=60",
    "--initial-old-space-size=64",
    "--max-semi-space-size=4",
  ];
  for (const option of given.slice(1, 3)) setFlagsFromString(option);
  assert.notEqual(cachedDataVersionTag(), byDefault, "Node.js would compile its own modules again");
  takeBackEngineOptions(given);
  assert.equal(cachedDataVersionTag(), byDefault);
  applyEngineOptions(given);
  const later = cachedDataVersionTag();
  setFlagsFromString("--heap-growing-percent=60");
  assert.equal(cachedDataVersionTag(), later);
  assert.notEqual(later, byDefault);
});

test("what was not given is left alone", (t) => {
  t.after(() => setFlagsFromString("--heap-growing-percent=0"));
  setFlagsFromString("--heap-growing-percent=30");
  const before = cachedDataVersionTag();
  takeBackEngineOptions(["--no-warnings"]);
  applyEngineOptions([]);
  assert.equal(cachedDataVersionTag(), before);
});
