/** The events that edits in a folder cause. */
import assert from "node:assert/strict";
import { mkdirSync, renameSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import { manifestBench, serviceYaml, sliceYaml } from "./testing/manifest-bench.ts";

test("files are found in all directories, temporary and hidden ones are not", async () => {
  using it = await manifestBench({
    "a.yaml": serviceYaml("a"),
    "deep/er/b.yml": serviceYaml("b"),
    "c.json": JSON.stringify({
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "c" },
      spec: { ports: [{ port: 1 }] },
    }),
    "d.txt": serviceYaml("d"),
    ".e.yaml": serviceYaml("e"),
    "f.yaml~": serviceYaml("f"),
    ".g.yaml.swp": serviceYaml("g"),
    "#h.yaml": serviceYaml("h"),
    ".git/i.yaml": serviceYaml("i"),
    "j.yaml.swp": serviceYaml("j"),
  });
  assert.deepEqual([...it.folder.records().services.keys()], ["default/a", "default/c", "default/b"]);
});

test("an edit is one event for the object that changed", async () => {
  using it = await manifestBench({
    "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}---\n${sliceYaml("s", "a")}`,
  });
  it.temp.write("a.yaml", `${serviceYaml("a")}---\n${serviceYaml("b", 81)}---\n${sliceYaml("s", "a")}`);
  assert.deepEqual(await it.settle(), ["update services/default/b"]);
});

test("comments, order, spelling and a touched file are no events", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", `# hello\n${serviceYaml("b")}---\n${serviceYaml("a").replace("port: 80", '"port": 80')}`);
  assert.deepEqual(await it.settle(), []);
});

test("a change of labels alone is none for a Service but one for a slice", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${sliceYaml("s", "a")}` });
  const labelled = (text: string) => text.replace("metadata:\n", "metadata:\n  annotations: { x: y }\n");
  it.temp.write("a.yaml", `${labelled(serviceYaml("a"))}---\n${labelled(sliceYaml("s", "a"))}`);
  assert.deepEqual(await it.settle(), ["update endpointSlices/default/s"]);
});

test("moving and renaming files is no event, removing them and directories is", async () => {
  using it = await manifestBench({
    "a.yaml": serviceYaml("a"),
    "d/b.yaml": serviceYaml("b"),
    "c.yaml": serviceYaml("c"),
  });
  mkdirSync(it.temp.at("e"));
  renameSync(it.temp.at("a.yaml"), it.temp.at("e/z.yaml"));
  assert.deepEqual(await it.settle(), []);
  it.temp.remove("d");
  it.temp.remove("c.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/c", "delete services/default/b"]);
});

test("nodes come first, then Services, then slices", async () => {
  using it = await manifestBench({});
  const node = "apiVersion: v1\nkind: Node\nmetadata: { name: n }\n";
  const cidr =
    "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: { name: k }\nspec: { cidrs: [10.96.0.0/12] }\n";
  it.temp.write("a.yaml", [sliceYaml("s", "a"), serviceYaml("a"), cidr, node].join("---\n"));
  assert.deepEqual(await it.settle(), [
    "add nodes/n",
    "add serviceCIDRs/k",
    "add services/default/a",
    "add endpointSlices/default/s",
  ]);
});

test("a selector that stops matching deletes, one that matches again adds", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  const labelled = serviceYaml("a").replace(
    "spec:",
    "  labels: { service.kubernetes.io/service-proxy-name: x }\nspec:",
  );
  it.temp.write("a.yaml", labelled);
  assert.deepEqual(await it.settle(), ["delete services/default/a"]);
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), ["add services/default/a"]);
});

test("of two files with one object the first in path order counts", async () => {
  using it = await manifestBench({ "b.yaml": serviceYaml("a", 2), "c.yaml": serviceYaml("x") });
  it.temp.write("c.yaml", serviceYaml("a", 3));
  assert.deepEqual(await it.settle(), ["delete services/default/x"]);
  assert.match(it.problems().join(), /^Service default\/a: is defined twice: the one in .*b\.yaml, document 1 is used/);
  assert.equal(it.log.take().length, 1);
  it.temp.write("a.yaml", serviceYaml("a", 1));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.equal(it.servicePort("a"), 1);
  it.temp.remove("a.yaml");
  it.temp.remove("b.yaml");
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.equal(it.servicePort("a"), 3);
  assert.deepEqual(it.problems(), []);
});

test("Endpoints objects are not read: a file that has them and no EndpointSlice says what to give", async () => {
  using it = await manifestBench({});
  const endpoints = "apiVersion: v1\nkind: Endpoints\nmetadata: { name: web }\n---\n";
  it.temp.write("a.yaml", `${serviceYaml("web")}---\n${endpoints.repeat(3)}`);
  assert.deepEqual(await it.settle(), ["add services/default/web"]);
  const named = /^Endpoints default\/web: is not read: give its EndpointSlices \(kubectl get endpointslices\)$/;
  assert.deepEqual(
    it.folder.problems().map(({ line, object, message }) => [line, named.test(`${object}: ${message}`)]),
    [[10, true]],
  );
  it.temp.write("a.json", JSON.stringify({ apiVersion: "v1", kind: "EndpointsList", items: [] }));
  await it.settle();
  assert.match(it.problems().join("\n"), /EndpointsList .* is not read: give its EndpointSlices/);
  it.temp.remove("a.json");
  it.temp.write("a.yaml", `${serviceYaml("web")}---\n${endpoints}${sliceYaml("web-1", "web")}`);
  await it.settle();
  assert.deepEqual(it.problems(), []);
});

test("a ConfigMap's swapped link is an ordinary change", async () => {
  using it = await manifestBench({ "..v1/a.yaml": serviceYaml("a"), "..v1/b.yaml": serviceYaml("b") });
  symlinkSync("..v1", it.temp.at("..data"));
  for (const name of ["a.yaml", "b.yaml"]) symlinkSync(`..data/${name}`, it.temp.at(name));
  assert.deepEqual(await it.settle(), ["add services/default/a", "add services/default/b"]);
  it.temp.write("..v2/a.yaml", serviceYaml("a", 81));
  it.temp.write("..v2/b.yaml", serviceYaml("b"));
  symlinkSync("..v2", it.temp.at("..data_tmp"));
  renameSync(it.temp.at("..data_tmp"), it.temp.at("..data"));
  it.temp.remove("..v1");
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.ok([...it.folder.directories().keys()].includes(it.temp.at("..v2")), "the real directory is watched too");
});
