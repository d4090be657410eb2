import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { test } from "node:test";
import { manifestBench, serviceYaml } from "./testing/manifest-bench.ts";

test("a file that is written again slowly, after it was empty for a while, deletes nothing on the way", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", "");
  assert.deepEqual(await it.settle(), []);
  appendFileSync(it.temp.at("a.yaml"), serviceYaml("a"));
  assert.equal(await it.look(100), true, "first seen");
  assert.equal(await it.look(100), true, "shorter than what it held");
  appendFileSync(it.temp.at("a.yaml"), `---\n${serviceYaml("b")}`);
  assert.deepEqual(await it.settle(), []);
  assert.deepEqual(it.problems(), []);
});

test("what is shorter for good counts in the end", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", "");
  await it.settle();
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), ["delete services/default/b"]);
});
