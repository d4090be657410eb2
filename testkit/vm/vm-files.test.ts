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
  const longest = ["graceful-termination", "foreign-hands"].map((name) => `test/kernel/ipvs/${name}.vm.test.ts`);
  for (const [index, file] of longest.entries()) {
    assert.ok(existsSync(join(CHECKOUT, file)));
    assert.ok(shares[index]?.includes(file), `${file} is among ${shares[index]?.join(", ")}`);
  }
});

test("a machine without a file is not started", () => {
  assert.deepEqual(shareFiles(["a"], 2), [["a"]]);
  assert.deepEqual(shareFiles([], 2), []);
});
