/** When a folder trusts files that are being written. */
import assert from "node:assert/strict";
import { appendFileSync, renameSync, truncateSync, utimesSync } from "node:fs";
import { test } from "node:test";
import { ManifestFolder } from "./manifest-folder.ts";
import {
  manifestBench,
  RecordingLogger,
  serviceYaml,
  sharedReader,
  sliceYaml,
  TempFolder,
} from "./testing/manifest-bench.ts";

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

test("a file that got shorter in place must rest longer", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.equal(await it.look(30), true);
  assert.equal(await it.look(200), true);
  assert.equal(await it.look(60), false);
  assert.deepEqual(it.sink.take(), ["delete services/default/b"]);
});

test("a file that is gone for a moment deletes nothing", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  it.temp.remove("a.yaml");
  assert.equal(await it.look(5000), true);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
});

test("a half-written file deletes and changes nothing, at any byte where it stops", async () => {
  const text = `${serviceYaml("a", 8080)}---\n${sliceYaml("s", "a")}---\n${serviceYaml("b", 9090)}`;
  using it = await manifestBench({ "a.yaml": text });
  for (let length = text.length - 2; length >= 0; length -= 7) {
    // Complete lines may just as well be an edit.
    if (length > 0 && (text[length] === "\n" || text[length - 1] === "\n")) continue;
    it.temp.write("a.yaml", text);
    await it.settle();
    truncateSync(it.temp.at("a.yaml"), length);
    assert.deepEqual(await it.settle(), [], `cut at ${length}`);
    assert.match(it.problems().join(), /stays in force/, `cut at ${length}`);
  }
  it.temp.write("a.yaml", text);
  assert.deepEqual(await it.settle(), []);
  assert.deepEqual(it.problems(), []);
});

test("a shorter file that replaces the other is complete, cut off or not", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a", 8080)}---\n${serviceYaml("b")}` });
  it.temp.replace("a.yaml", serviceYaml("a", 8080).trimEnd().slice(0, -2));
  assert.deepEqual(await it.settle(), ["update services/default/a", "delete services/default/b"]);
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

test("a finished file that is moved in is believed at the first look, one that was just written is not", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a"), "b.yaml": serviceYaml("b") });
  const moveIn = (name: string, text: string, modified: Date) => {
    it.temp.write("draft", text);
    utimesSync(it.temp.at("draft"), modified, modified);
    renameSync(it.temp.at("draft"), it.temp.at(name));
  };
  const before = new Date(Date.now() - 10_000);
  moveIn("a.yaml", serviceYaml("a", 81), before);
  moveIn("c.yaml", serviceYaml("c"), before);
  assert.equal(await it.look(0), false);
  assert.deepEqual(it.sink.take().sort(), ["add services/default/c", "update services/default/a"]);
  moveIn("b.yaml", serviceYaml("b", 82), new Date(Date.now() + 10_000));
  assert.equal(await it.look(0), true);
  assert.deepEqual(it.sink.take(), []);
  assert.deepEqual(await it.settle(), ["update services/default/b"]);
});
