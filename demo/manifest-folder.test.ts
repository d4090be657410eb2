import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { demoObjectKey } from "./cluster-view.ts";
import { ManifestFolder } from "./manifest-folder.ts";

async function folderFor(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "kpts-manifests-"));
  t.after(() => rm(folder, { recursive: true }));
  return folder;
}

const service = (name: string, port = 80) =>
  `kind: Service\nmetadata: { name: ${name} }\nspec: { clusterIP: 10.96.0.1, ports: [{ port: ${port} }] }\n`;

async function keysOf(folder: ManifestFolder): Promise<string[]> {
  return (await folder.read()).objects.map(demoObjectKey).sort();
}

test("objects come from nested files, several documents, lists and JSON; other files are passed over", async (t) => {
  const path = await folderFor(t);
  await mkdir(join(path, "deep"));
  await writeFile(join(path, "two.yaml"), `${service("a")}---\n${service("b")}`);
  await writeFile(
    join(path, "deep/list.yml"),
    `kind: ServiceList\nitems:\n  - { kind: Service, metadata: { name: c }, spec: {} }\n`,
  );
  await writeFile(join(path, "d.json"), JSON.stringify({ kind: "Service", metadata: { name: "d" }, spec: {} }));
  await writeFile(join(path, "notes.txt"), service("e"));
  await writeFile(join(path, ".hidden.yaml"), service("f"));
  const keys = await keysOf(new ManifestFolder(path));
  assert.deepEqual(
    keys,
    ["a", "b", "c", "d"].map((name) => `Service default/${name}`),
  );
});

test("while a document is broken its last good version counts, and the problem names file and document", async (t) => {
  const path = await folderFor(t);
  const file = join(path, "web.yaml");
  await writeFile(file, `${service("a")}---\n${service("b")}`);
  const folder = new ManifestFolder(path);
  await folder.read();
  for (const broken of ["kind: [", service("b", 70_000)]) {
    await writeFile(file, `${service("a", 81)}---\n${broken}`);
    const { objects, problems } = await folder.read();
    assert.deepEqual(objects.map(demoObjectKey).sort(), ["Service default/a", "Service default/b"]);
    assert.equal(problems.length, 1);
    assert.match(problems[0] ?? "", /web\.yaml document 2: /);
    const changed = objects.find((object) => object.kind === "Service" && object.metadata.name === "a");
    assert.equal(changed?.kind === "Service" ? changed.spec.ports[0]?.port : 0, 81);
  }
  await writeFile(file, service("a"));
  assert.deepEqual(await keysOf(folder), ["Service default/a"]);
});

test("a path that does not exist is an error", async () => {
  await assert.rejects(new ManifestFolder("/nowhere/at/all").read(), { code: "ENOENT" });
});
