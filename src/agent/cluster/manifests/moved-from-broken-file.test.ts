import assert from "node:assert/strict";
import { test } from "node:test";
import { readManifests } from "./read-manifests.ts";
import { manifestBench, serviceYaml } from "./testing/manifest-bench.ts";

test("an object that another file defines well now is taken from there, and not from what a broken file once held", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  // After a broken edit of a.yaml its objects stay, as they must.
  it.temp.write("a.yaml", `${serviceYaml("a")}---\n: [\n`);
  assert.deepEqual(await it.settle(), []);
  // In the meantime b is written to its own file, with another port.
  it.temp.write("b.yaml", serviceYaml("b", 81));
  await it.settle();
  // No file has port 80 any more, and a restart would use 81.
  const fresh = await readManifests(it.temp.path);
  assert.deepEqual(fresh.services.find(({ name }) => name === "b")?.ports[0]?.port, 81);
  assert.equal(it.servicePort("b"), 81);
});

test("the same for an object of which the first file has a bad version", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("b") });
  it.temp.write("a.yaml", serviceYaml("b", 0));
  it.temp.write("b.yaml", serviceYaml("b", 81));
  await it.settle();
  const fresh = await readManifests(it.temp.path);
  assert.deepEqual(
    fresh.services.map(({ ports }) => ports[0]?.port),
    [81],
  );
  assert.equal(it.servicePort("b"), 81);
});
