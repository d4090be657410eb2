import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const module = new URL("./fast-check.ts", import.meta.url).href;

/** What a property sees, in a process with this environment. */
function seen(env: Readonly<Record<string, string>>): string {
  const code = `import fc, { historyRuns } from ${JSON.stringify(module)};
    const values = [];
    fc.assert(fc.property(fc.integer(), (value) => void values.push(value)), { numRuns: 5 });
    console.log(String(values.join() + " " + historyRuns("KPTS_PROPERTY_RUNS", 7)));`;
  return execFileSync(process.execPath, ["--input-type=module", "-e", code], {
    env: { ...process.env, ...env },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

test("a seed repeats a run, and another one makes another", () => {
  assert.equal(seen({ KPTS_PROPERTY_SEED: "-42" }), seen({ KPTS_PROPERTY_SEED: "-42" }));
  assert.notEqual(seen({ KPTS_PROPERTY_SEED: "-42" }), seen({ KPTS_PROPERTY_SEED: "43" }));
  assert.throws(() => seen({ KPTS_PROPERTY_SEED: "x" }), /KPTS_PROPERTY_SEED is x, and must be a whole number/);
});

test("a scale multiplies histories, and a number of runs is taken as it is", () => {
  assert.match(seen({ KPTS_PROPERTY_SCALE: "10" }), / 70$/m);
  assert.match(seen({ KPTS_PROPERTY_SCALE: "10", KPTS_PROPERTY_RUNS: "3" }), / 3$/m);
});
