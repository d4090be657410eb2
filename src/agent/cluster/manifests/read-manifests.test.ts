import assert from "node:assert/strict";
import { test } from "node:test";
import { projectObjects, readManifests } from "./read-manifests.ts";
import { serviceYaml, sliceYaml, TempFolder } from "./testing/manifest-bench.ts";

test("a folder and a single file of any name are read once", async () => {
  using temp = new TempFolder();
  temp.write("b.yaml", serviceYaml("b"));
  temp.write("a.yaml", `${serviceYaml("a")}---\n${sliceYaml("s", "a")}---\n${serviceYaml("c", 0)}`);
  temp.write("other.conf", serviceYaml("d"));
  const folder = await readManifests(temp.path);
  assert.deepEqual(
    folder.services.map((service) => service.name),
    ["a", "b"],
  );
  assert.equal(folder.endpointSlices[0]?.name, "s");
  assert.equal(folder.problems[0]?.document, 3);
  const file = await readManifests(temp.at("other.conf"));
  assert.deepEqual(
    file.services.map((service) => service.name),
    ["d"],
  );
});

test("what is not there rejects", async () => {
  using temp = new TempFolder();
  await assert.rejects(readManifests(temp.at("nothing")), /ENOENT/);
});

test("decoded objects are projected like documents", () => {
  const service = (name: string, port: unknown) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name },
    spec: { clusterIP: "10.0.0.1", ports: [{ port }] },
  });
  const node = { apiVersion: "v1", kind: "Node", metadata: { name: "n" } };
  const result = projectObjects([service("a", 80), { apiVersion: "v1", kind: "List", items: [service("b", 0), node] }]);
  assert.deepEqual(
    [result.services.map((record) => record.name), result.nodes.map((record) => record.name), result.serviceCIDRs],
    [["a"], ["n"], []],
  );
  assert.deepEqual(
    result.problems.map(({ document, object, field }) => [document, object, field]),
    [[2, "Service default/b", "items[0].spec.ports[0].port"]],
  );
});
