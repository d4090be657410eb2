/** When a folder trusts files that are being written. */
import assert from "node:assert/strict";
import { appendFileSync, truncateSync, utimesSync } from "node:fs";
import { test } from "node:test";
import { ManifestFolder } from "./manifest-folder.ts";
import { manifestBench, RecordingLogger, serviceYaml, sharedReader, TempFolder } from "./testing/manifest-bench.ts";

test("a file is read when it has come to rest", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  it.temp.write("a.yaml", serviceYaml("a", 8080));
  assert.equal(await it.look(5000), true, "first seen");
  appendFileSync(it.temp.at("a.yaml"), `---\n${serviceYaml("b")}`);
  assert.equal(await it.look(30), true, "seen to grow");
  assert.deepEqual(it.sink.take(), []);
  assert.equal(await it.look(30), false);
  assert.deepEqual(it.sink.take(), ["update services/default/a", "add services/default/b"]);
});

test("a file that is gone for a moment deletes nothing", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  it.temp.remove("a.yaml");
  assert.equal(await it.look(5000), true);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
});

test("of a file that is cut off inside a document, what it held stays", async () => {
  const text = `${serviceYaml("a", 8080)}---\n${serviceYaml("b", 9090)}`;
  using it = await manifestBench({ "a.yaml": text });
  truncateSync(it.temp.at("a.yaml"), text.indexOf("clusterIP", text.indexOf("---")) + 3);
  assert.deepEqual(await it.settle(), []);
  assert.match(it.problems().join(), /Service default\/b: spec must be an object/);
  it.temp.write("a.yaml", text);
  assert.deepEqual(await it.settle(), []);
  assert.deepEqual(it.problems(), []);
});

test("a file that is shorter, or empty, counts", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), ["delete services/default/b"]);
  it.temp.write("a.yaml", "");
  assert.deepEqual(await it.settle(), ["delete services/default/a"]);
});

test("a file written just before the first reading is read once more, an older one is not", async () => {
  using temp = new TempFolder();
  let fresh: ManifestFolder;
  let writtenMs: number;
  do {
    // On a busy machine the first read may come too late to distrust the file: then try again.
    writtenMs = Date.now();
    temp.write("a.yaml", serviceYaml("a"));
    fresh = new ManifestFolder(temp.path, new RecordingLogger(), sharedReader);
    await fresh.load();
  } while (Date.now() - writtenMs >= 100);
  assert.equal((await fresh.refresh(0)).isUnsettled, true);
  assert.deepEqual(await fresh.refresh(1000), { isChanged: false, isUnsettled: false });
  utimesSync(temp.at("a.yaml"), 1, 1);
  const old = new ManifestFolder(temp.path, new RecordingLogger(), sharedReader);
  await old.load();
  assert.equal((await old.refresh(0)).isUnsettled, false);
});
