import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKOUT } from "./run-in-vm.ts";
import { shareFiles, vmFiles } from "./vm-files.ts";

test("the files are shared so that no machine waits long for another", () => {
  const files = vmFiles(CHECKOUT, "uml", false);
  const shares = shareFiles(files, 2);
  assert.deepEqual(shares.flat().sort(), [...files].sort());
  const faults = "test/kernel/ipvs/faults.vm.test.ts";
  assert.ok(existsSync(join(CHECKOUT, faults)));
  const [long = [], other = []] = shares;
  assert.ok(long.includes(faults));
  assert.ok(other.includes("test/kernel/flows/features.test.ts"));
});

test("a machine without a file is not started", () => {
  assert.deepEqual(shareFiles(["a"], 2), [["a"]]);
  assert.deepEqual(shareFiles([], 2), []);
});
