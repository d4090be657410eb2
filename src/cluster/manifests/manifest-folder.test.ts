import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, chmodSync, mkdirSync, renameSync, symlinkSync, truncateSync, utimesSync } from "node:fs";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { ManifestFolder } from "./manifest-folder.ts";
import { readManifests } from "./read-manifests.ts";
import {
  endpointsYaml,
  ManifestBench,
  RecordingLogger,
  serviceYaml,
  sharedReader,
  sliceYaml,
  TempFolder,
} from "./testing/manifest-bench.ts";

async function bench(files: Record<string, string>): Promise<ManifestBench> {
  const made = new ManifestBench();
  for (const [name, text] of Object.entries(files)) made.temp.write(name, text);
  await made.load();
  return made;
}

function servicePort(folder: ManifestBench, name: string): number | undefined {
  return folder.folder.records().services.get(`default/${name}`)?.record.ports[0]?.port;
}

test("files are found in all directories, temporary and hidden ones are not", async () => {
  using it = await bench({
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
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}---\n${sliceYaml("s", "a")}` });
  it.temp.write("a.yaml", `${serviceYaml("a")}---\n${serviceYaml("b", 81)}---\n${sliceYaml("s", "a")}`);
  assert.deepEqual(await it.settle(), ["update services/default/b"]);
});

test("comments, order, spelling and a touched file are no events", async () => {
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", `# hello\n${serviceYaml("b")}---\n${serviceYaml("a").replace("port: 80", '"port": 80')}`);
  assert.deepEqual(await it.settle(), []);
});

test("a change of labels alone is none for a Service but one for a slice", async () => {
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${sliceYaml("s", "a")}` });
  const labelled = (text: string) => text.replace("metadata:\n", "metadata:\n  annotations: { x: y }\n");
  it.temp.write("a.yaml", `${labelled(serviceYaml("a"))}---\n${labelled(sliceYaml("s", "a"))}`);
  assert.deepEqual(await it.settle(), ["update endpointSlices/default/s"]);
});

test("moving and renaming files is no event, removing them and directories is", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a"), "d/b.yaml": serviceYaml("b"), "c.yaml": serviceYaml("c") });
  mkdirSync(it.temp.at("e"));
  renameSync(it.temp.at("a.yaml"), it.temp.at("e/z.yaml"));
  assert.deepEqual(await it.settle(), []);
  it.temp.remove("d");
  it.temp.remove("c.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/c", "delete services/default/b"]);
});

test("nodes come first, then Services, then slices", async () => {
  using it = await bench({});
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
  using it = await bench({ "a.yaml": serviceYaml("a") });
  const labelled = serviceYaml("a").replace(
    "spec:",
    "  labels: { service.kubernetes.io/service-proxy-name: x }\nspec:",
  );
  it.temp.write("a.yaml", labelled);
  assert.deepEqual(await it.settle(), ["delete services/default/a"]);
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), ["add services/default/a"]);
});

test("an object whose new version is bad stays as it was, its neighbours change", async () => {
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}---\n${serviceYaml("c")}` });
  it.temp.write("a.yaml", `${serviceYaml("a", 0)}---\n${serviceYaml("b", 81)}`);
  assert.deepEqual(await it.settle(), ["update services/default/b", "delete services/default/c"]);
  assert.equal(servicePort(it, "a"), 80);
  assert.deepEqual(it.problems(), [
    "Service default/a: spec.ports[0].port must be a whole number from 1 to 65535, got 0",
  ]);
  it.temp.write("a.yaml", serviceYaml("a", 82));
  assert.deepEqual(await it.settle(), ["update services/default/a", "delete services/default/b"]);
  assert.deepEqual(it.problems(), []);
});

test("a problem is logged once per change of content", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a") });
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

test("everything of a file stays while part of it cannot be parsed", async () => {
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}`, "c.yaml": serviceYaml("c") });
  it.temp.write("a.yaml", `${serviceYaml("a", 81)}---\n: [\n`);
  it.temp.write("c.yaml", serviceYaml("c", 82));
  assert.deepEqual(await it.settle(), ["update services/default/a", "update services/default/c"]);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["delete services/default/b"]);
});

test("an object that moves to another file and breaks there stays as it was", async () => {
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("b.yaml", serviceYaml("b", 0));
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), []);
  it.temp.remove("b.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/b"]);
});

test("of two files with one object the first in path order counts", async () => {
  using it = await bench({ "b.yaml": serviceYaml("a", 2), "c.yaml": serviceYaml("x") });
  it.temp.write("c.yaml", serviceYaml("a", 3));
  assert.deepEqual(await it.settle(), ["delete services/default/x"]);
  assert.match(it.problems().join(), /^Service default\/a: is defined twice: the one in .*b\.yaml, document 1 is used/);
  assert.equal(it.log.take().length, 1);
  it.temp.write("a.yaml", serviceYaml("a", 1));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.equal(servicePort(it, "a"), 1);
  it.temp.remove("a.yaml");
  it.temp.remove("b.yaml");
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
  assert.equal(servicePort(it, "a"), 3);
  assert.deepEqual(it.problems(), []);
});

test("Endpoints give slices until an EndpointSlice of the same Service is there", async () => {
  using it = await bench({});
  it.temp.write("a.yaml", endpointsYaml("web"));
  const [added] = await it.settle();
  assert.match(added ?? "", /^add endpointSlices\/default\/web-[a-z0-9]{8}$/);
  it.temp.write("b.yaml", sliceYaml("web-1", "web"));
  assert.deepEqual(await it.settle(), ["add endpointSlices/default/web-1", added?.replace("add", "delete")]);
  it.temp.remove("b.yaml");
  assert.deepEqual(await it.settle(), [added, "delete endpointSlices/default/web-1"]);
});

test("a file is read when it has come to rest", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a") });
  it.temp.write("a.yaml", serviceYaml("a", 8080));
  assert.equal(await it.look(5000), true, "first seen");
  appendFileSync(it.temp.at("a.yaml"), `---\n${serviceYaml("b")}`);
  assert.equal(await it.look(30), true, "seen to grow");
  assert.deepEqual(it.sink.take(), []);
  assert.equal(await it.look(30), false);
  assert.deepEqual(it.sink.take(), ["update services/default/a", "add services/default/b"]);
});

test("a file that got shorter in place must rest longer", async () => {
  using it = await bench({ "a.yaml": `${serviceYaml("a")}---\n${serviceYaml("b")}` });
  it.temp.write("a.yaml", serviceYaml("a"));
  assert.equal(await it.look(30), true);
  assert.equal(await it.look(200), true);
  assert.equal(await it.look(60), false);
  assert.deepEqual(it.sink.take(), ["delete services/default/b"]);
});

test("a file that is gone for a moment deletes nothing", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a") });
  it.temp.remove("a.yaml");
  assert.equal(await it.look(5000), true);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
});

test("a half-written file deletes and changes nothing, at whatever byte it stops", async () => {
  const text = `${serviceYaml("a", 8080)}---\n${sliceYaml("s", "a")}---\n${serviceYaml("b", 9090)}`;
  using it = await bench({ "a.yaml": text });
  for (let length = text.length - 2; length >= 0; length -= 7) {
    // Whole lines may as well be an edit.
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
  using it = await bench({ "a.yaml": `${serviceYaml("a", 8080)}---\n${serviceYaml("b")}` });
  it.temp.replace("a.yaml", serviceYaml("a", 8080).trimEnd().slice(0, -2));
  assert.deepEqual(await it.settle(), ["update services/default/a", "delete services/default/b"]);
});

test("a ConfigMap's swapped link is an ordinary change", async () => {
  using it = await bench({ "..v1/a.yaml": serviceYaml("a"), "..v1/b.yaml": serviceYaml("b") });
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

test("links that lead in a circle or nowhere do no harm", async () => {
  using it = await bench({ "d/a.yaml": serviceYaml("a") });
  symlinkSync("..", it.temp.at("d/up"));
  symlinkSync("nowhere.yaml", it.temp.at("b.yaml"));
  symlinkSync("c.yaml", it.temp.at("c.yaml"));
  it.temp.write("z.yaml", serviceYaml("z"));
  assert.deepEqual(await it.settle(), ["add services/default/z"]);
  const [problem, ...more] = it.problems();
  assert.match(problem ?? "", /ELOOP.*c\.yaml/);
  assert.deepEqual(more, [], "each directory is read once");
});

test("a file written just before the first reading is read once more, an older one is not", async () => {
  using temp = new TempFolder();
  temp.write("a.yaml", serviceYaml("a"));
  const fresh = new ManifestFolder(temp.path, new RecordingLogger(), sharedReader);
  await fresh.load();
  assert.equal((await fresh.refresh(0)).isUnsettled, true);
  assert.deepEqual(await fresh.refresh(1000), { isChanged: false, isUnsettled: false });
  utimesSync(temp.at("a.yaml"), 1, 1);
  const old = new ManifestFolder(temp.path, new RecordingLogger(), sharedReader);
  await old.load();
  assert.equal((await old.refresh(0)).isUnsettled, false);
});

test("a finished file that is moved in is believed at the first look, one that was just written is not", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a"), "b.yaml": serviceYaml("b") });
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

test("losing the folder throws and deletes nothing, and it is picked up when it is back", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a") });
  renameSync(it.temp.path, `${it.temp.path}.away`);
  await assert.rejects(it.look(1000), /ENOENT/);
  await assert.rejects(it.look(1000), /ENOENT/);
  assert.deepEqual(it.sink.take(), []);
  renameSync(`${it.temp.path}.away`, it.temp.path);
  it.temp.write("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await it.settle(), ["update services/default/a"]);
});

test("a file that cannot be read keeps what it held", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a") });
  it.temp.remove("a.yaml");
  // A file of holes: too large to be a manifest, and root may read everything else.
  it.temp.write("a.yaml", "");
  truncateSync(it.temp.at("a.yaml"), 65 * 1024 * 1024);
  assert.deepEqual(await it.settle(), []);
  assert.match(it.problems().join(), /cannot be read: it is larger than/);
  assert.equal(it.log.take().length, 1);
  await it.settle();
  assert.equal(it.log.take().length, 0, "logged once");
  it.temp.replace("a.yaml", serviceYaml("a"));
  assert.deepEqual(await it.settle(), []);
  assert.deepEqual(it.problems(), []);
  chmodSync(it.temp.at("a.yaml"), 0o600);
  assert.deepEqual(await it.settle(), []);
});

test("pipes, and files of file systems without sizes, are skipped by name and once", async () => {
  using it = await bench({ "a.yaml": serviceYaml("a") });
  execFileSync("mkfifo", [it.temp.at("pipe.yaml")]);
  symlinkSync("/proc/kmsg", it.temp.at("kmsg.yaml"));
  symlinkSync("/sys/kernel/uevent_seqnum", it.temp.at("sys.yaml"));
  symlinkSync("/dev/null", it.temp.at("null.yaml"));
  symlinkSync("/proc/self", it.temp.at("self"));
  it.temp.write("z.yaml", serviceYaml("z"));
  assert.deepEqual(await it.settle(), ["add services/default/z"]);
  const skipped = it.folder.problems().map(({ file, message }) => `${file.slice(it.temp.path.length + 1)} ${message}`);
  assert.deepEqual(
    skipped.map((text) => text.replace("; what it held before stays in force", "")),
    [
      "kmsg.yaml is skipped: it is on a file system (proc) whose files have no sizes",
      "null.yaml is skipped: it is a device; only regular files are read",
      "pipe.yaml is skipped: it is a pipe; only regular files are read",
      "self is skipped: it is on a file system (proc) whose files have no sizes",
      "sys.yaml is skipped: it is on a file system (sysfs) whose files have no sizes",
    ],
  );
  assert.equal(it.log.take().length, 5);
  await it.settle();
  assert.equal(it.log.take().length, 0, "named once");
  // What a good file held stays when something else takes its place.
  it.temp.remove("a.yaml");
  execFileSync("mkfifo", [it.temp.at("a.yaml")]);
  assert.deepEqual(await it.settle(), []);
  await assert.rejects(readManifests("/proc/kmsg"), /\/proc\/kmsg is skipped: it is on a file system \(proc\)/);
  await assert.rejects(readManifests(it.temp.at("pipe.yaml")), /is skipped: it is a pipe/);
});

/** One step of a folder's history. */
const step = fc.oneof(
  fc.record({
    do: fc.constantFrom("write" as const, "replace" as const),
    file: fc.constantFrom("a.yaml", "b.yaml", "d/c.yaml"),
    documents: fc.array(
      fc.oneof(
        fc
          .tuple(fc.constantFrom("a", "b", "c"), fc.integer({ min: 1, max: 3 }))
          .map(([name, port]) => serviceYaml(name, port)),
        fc
          .tuple(fc.constantFrom("s", "t"), fc.constantFrom("a", "b"))
          .map(([name, service]) => sliceYaml(name, service)),
        fc.constantFrom("a", "b").map((name) => endpointsYaml(name)),
        fc.constant("# nothing\n"),
      ),
      { minLength: 1, maxLength: 4 },
    ),
  }),
  fc.record({ do: fc.constant("remove" as const), file: fc.constantFrom("a.yaml", "b.yaml", "d/c.yaml", "d") }),
  fc.record({ do: fc.constant("look" as const), ms: fc.nat(300) }),
);

test("after any history of edits the sink holds what a fresh reading gives", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 15 }), async (steps) => {
      using it = await bench({ "a.yaml": serviceYaml("a") });
      for (const change of steps) {
        if (change.do === "look") await it.look(change.ms);
        else if (change.do === "remove") it.temp.remove(change.file);
        else it.temp[change.do](change.file, change.documents.join("---\n"));
      }
      await it.settle();
      const fresh = await readManifests(it.temp.path);
      const records = [...fresh.services, ...fresh.endpointSlices].map((record) => JSON.stringify(record)).sort();
      assert.deepEqual(Array.from(it.sink.current.values(), (record) => JSON.stringify(record)).sort(), records);
    }),
    { numRuns: 60 },
  );
});

test("arbitrary files never stop the folder, and good ones beside them count", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 5 }), async (contents) => {
      using it = await bench({ "z.yaml": serviceYaml("z") });
      for (const [index, bytes] of contents.entries()) {
        it.temp.write(index % 2 === 0 ? "a.yaml" : "b.json", Buffer.from(bytes).toString("latin1"));
        await it.settle();
      }
      assert.equal(servicePort(it, "z"), 80);
    }),
    { numRuns: 40 },
  );
});
