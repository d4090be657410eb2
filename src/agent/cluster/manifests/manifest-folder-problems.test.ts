/** A folder with unusable files and objects: they are reported, and the previous objects stay. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, renameSync, rmSync, symlinkSync, truncateSync } from "node:fs";
import { test } from "node:test";
import { createLogger } from "../../../logging/create-logger.ts";
import { ProblemMemory } from "../../../logging/problem-memory.ts";
import { ManifestFolder } from "./manifest-folder.ts";
import { ManifestReader } from "./manifest-reader.ts";
import { readManifests } from "./read-manifests.ts";
import { manifestBench, serviceYaml, TempFolder } from "./testing/manifest-bench.ts";

test("an object whose new version is bad stays as it was, its neighbours change", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}---\n${serviceYaml("c")}` });
  it.temp.write("a.yaml", `${serviceYaml("a", 0)}---\n${serviceYaml("b", 81)}`);
  assert.deepEqual(await it.settle(), ["update services/default/b", "delete services/default/c"]);
  assert.equal(it.servicePort("a"), 80);
  assert.deepEqual(it.problems(), [
    "Service default/a: spec.ports[0].port must be a whole number from 1 to 65535, got 0",
  ]);
  it.temp.write("a.yaml", serviceYaml("a", 82));
  assert.deepEqual(await it.settle(), ["update services/default/a", "delete services/default/b"]);
  assert.deepEqual(it.problems(), []);
});

test("a problem is logged once per change of content", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  it.temp.write("a.yaml", serviceYaml("a", 0));
  await it.settle();
  const [line, ...more] = it.log.take();
  assert.deepEqual(more, []);
  for (const part of ["a.yaml", '"document":1', "Service default/a", "spec.ports[0].port", "got 0"]) {
    assert.ok(line?.includes(part), `${part} is missing in ${line}`);
  }
  it.temp.write("a.yaml", serviceYaml("a", 0));
  it.temp.write("b.yaml", serviceYaml("b"));
  await it.settle();
  assert.deepEqual(it.log.take(), []);
  it.temp.write("a.yaml", `# again\n${serviceYaml("a", 0)}`);
  await it.settle();
  assert.equal(it.log.take().length, 1);
});

test("how many are refused is one of the node's limits, while it lasts", async () => {
  using temp = new TempFolder();
  const memory = new ProblemMemory();
  const log = createLogger({ write: () => {}, onRecord: (record) => memory.note(record) });
  const folder = new ManifestFolder(temp.path, log, new ManifestReader());
  temp.write("a.yaml", `${serviceYaml("a", 0)}---\n${serviceYaml("b", 0)}`);
  temp.write("c.yaml", serviceYaml("c"));
  await folder.load();
  const where = `the log says which, and so does kube-proxy render -f ${temp.path} >/dev/null`;
  assert.deepEqual(memory.limits, [{ what: "use all manifests", why: `2 objects or files are refused: ${where}` }]);
  temp.replace("a.yaml", serviceYaml("a", 0));
  await folder.load();
  assert.equal(memory.limits[0]?.why, `1 object or file is refused: ${where}`);
  temp.remove("a.yaml");
  await folder.load();
  assert.deepEqual(memory.limits, []);
});

test("everything of a file stays while part of it cannot be parsed", async () => {
  using it = await manifestBench({
    "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}`,
    "c.yaml": serviceYaml("c"),
  });
  it.temp.write("a.yaml", `${serviceYaml("a", 81)}---\n: [\n`);
  it.temp.write("c.yaml", serviceYaml("c", 82));
  assert.deepEqual(await it.settle(), ["update services/default/a", "update services/default/c"]);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["delete services/default/b"]);
});

test("an object that moves to another file and breaks there stays as it was", async () => {
  using it = await manifestBench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("b.yaml", serviceYaml("b", 0));
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), []);
  it.temp.remove("b.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/b"]);
});

test("links that lead in a circle or nowhere do no harm", async () => {
  using it = await manifestBench({ "d/a.yaml": serviceYaml("a") });
  symlinkSync("..", it.temp.at("d/up"));
  symlinkSync("nowhere.yaml", it.temp.at("b.yaml"));
  symlinkSync("c.yaml", it.temp.at("c.yaml"));
  it.temp.write("z.yaml", serviceYaml("z"));
  assert.deepEqual(await it.settle(), ["add services/default/z"]);
  const [problem, ...more] = it.problems();
  assert.match(problem ?? "", /ELOOP.*c\.yaml/);
  assert.deepEqual(more, [], "each directory is read once");
});

test("losing the folder throws and deletes nothing, and it is picked up when it is back", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  renameSync(it.temp.path, `${it.temp.path}.away`);
  await assert.rejects(it.look(1000), /ENOENT/);
  await assert.rejects(it.look(1000), /ENOENT/);
  assert.deepEqual(it.sink.take(), []);
  renameSync(`${it.temp.path}.away`, it.temp.path);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
});

test("what a place held stays when it cannot be read, what another with a longer name held goes", async () => {
  using it = await manifestBench({ "b/in.yaml": serviceYaml("in"), "bc.yaml": serviceYaml("bc") });
  it.temp.remove("b");
  symlinkSync("/", it.temp.at("b"));
  it.temp.remove("bc.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/bc"]);
  it.temp.remove("b");
  assert.deepEqual(await it.settle(), ["delete services/default/in"]);
});

const LEAVES = "is skipped: it is a link that leaves the folder; put the file itself here";

test("nothing of what a link leads to outside of the folder is read, a neighbour with a longer name neither", async () => {
  using outside = new TempFolder();
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  outside.write("secret.yaml", serviceYaml("canary", 0));
  execFileSync("mkdir", [`${it.temp.path}x`]);
  execFileSync("cp", [outside.at("secret.yaml"), `${it.temp.path}x/b.yaml`]);
  try {
    symlinkSync(outside.path, it.temp.at("d"));
    symlinkSync(outside.at("secret.yaml"), it.temp.at("s.yaml"));
    symlinkSync(`${it.temp.path}x/b.yaml`, it.temp.at("b.yaml"));
    // A chain of two links, the first of which stays inside.
    symlinkSync("s.yaml", it.temp.at("t.yaml"));
    assert.deepEqual(await it.settle(), []);
    const problems = it.problems().join("\n");
    assert.equal(problems.match(/is a link that leaves the folder/g)?.length, 4, problems);
    assert.doesNotMatch(problems + it.log.take().join("\n"), /canary/);
  } finally {
    rmSync(`${it.temp.path}x`, { recursive: true });
  }
});

test("a file that cannot be read keeps what it held", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  it.temp.remove("a.yaml");
  // A sparse file larger than the limit: root may read any file regardless of its mode.
  it.temp.write("a.yaml", "");
  truncateSync(it.temp.at("a.yaml"), 65 * 1024 * 1024);
  assert.deepEqual(await it.settle(), []);
  assert.match(it.problems().join(), /cannot be read: it is larger than.*; what it held before stays in force$/);
  assert.equal(it.log.take().length, 1);
  await it.settle();
  assert.equal(it.log.take().length, 0, "logged once");
  it.temp.replace("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), []);
  assert.deepEqual(it.problems(), []);
  chmodSync(it.temp.at("a.yaml"), 0o600);
  assert.deepEqual(await it.settle(), []);
});

test("pipes, and links that leave the folder, are skipped by name and once", async () => {
  using it = await manifestBench({ "a.yaml": serviceYaml("a") });
  execFileSync("mkfifo", [it.temp.at("pipe.yaml")]);
  symlinkSync("/proc/kmsg", it.temp.at("kmsg.yaml"));
  symlinkSync("/sys/kernel/uevent_seqnum", it.temp.at("sys.yaml"));
  symlinkSync("/dev/null", it.temp.at("null.yaml"));
  symlinkSync("/proc/self", it.temp.at("self"));
  symlinkSync(`${it.temp.path}-not/a.yaml`, it.temp.at("gone.yaml"));
  it.temp.write("z.yaml", serviceYaml("z"));
  assert.deepEqual(await it.settle(), ["add services/default/z"]);
  const skipped = it.folder.problems().map(({ file, message }) => `${file.slice(it.temp.path.length + 1)} ${message}`);
  // Nothing stays in force that never held anything.
  assert.deepEqual(skipped, [
    `kmsg.yaml ${LEAVES}`,
    `null.yaml ${LEAVES}`,
    "pipe.yaml is skipped: it is a pipe; only regular files are read",
    `self ${LEAVES}`,
    `sys.yaml ${LEAVES}`,
  ]);
  assert.equal(it.log.take().length, 5);
  await it.settle();
  assert.equal(it.log.take().length, 0, "named once");
  // The objects of a good file stay if something else replaces it.
  it.temp.remove("a.yaml");
  execFileSync("mkfifo", [it.temp.at("a.yaml")]);
  assert.deepEqual(await it.settle(), []);
  assert.match(it.problems().join(), /is skipped: it is a pipe[^,]*; what it held before stays in force/);
  // A command that reads once holds nothing from before.
  it.temp.write("large.yaml", "");
  truncateSync(it.temp.at("large.yaml"), 65 * 1024 * 1024);
  const { problems } = await readManifests(it.temp.path);
  assert.ok(problems.some(({ message }) => /^cannot be read: it is larger than/.test(message)));
  assert.doesNotMatch(JSON.stringify(problems), /stays in force/);
  await assert.rejects(readManifests("/dev/null"), /is skipped: it is a device; only regular files are read/);
  await assert.rejects(readManifests(it.temp.at("pipe.yaml")), /is skipped: it is a pipe/);
});
