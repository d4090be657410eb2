/** Objects that are nested too deeply for JSON.stringify. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readManifestText } from "./read-manifests.ts";
import { manifestBench, serviceYaml } from "./testing/manifest-bench.ts";

const nested = (depth: number, port: number): string => {
  const metadata = { name: "deep", annotations: {} };
  const head = JSON.stringify({ apiVersion: "v1", kind: "Service", metadata, spec: { ports: [{ port }] } });
  return `${head.slice(0, -1)},"x":${"[".repeat(depth)}${"]".repeat(depth)}}`;
};
const DEEP = 50_000;

test("an object that is nested too deeply is named, stays as it was, and keeps no other file from being read", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a"), "deep.json": nested(1, 80) });
  it.temp.write("deep.json", nested(DEEP, 81));
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.equal(it.servicePort("deep"), 80);
  assert.match(it.problems().join(), /^Service default\/deep: the object must be nested less deeply/);
  it.temp.write("deep.json", nested(1, 81));
  assert.deepEqual(await it.settle(), ["update services/default/deep"]);
  assert.deepEqual(it.problems(), []);
});

test("the same at the start, and for a command", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a"), "deep.json": nested(DEEP, 80) });
  assert.deepEqual([...it.folder.records().services.keys()], ["default/a"]);
  const { services, problems } = await readManifestText(nested(DEEP, 80), "-");
  assert.deepEqual([services.length, problems.length], [0, 1]);
});
