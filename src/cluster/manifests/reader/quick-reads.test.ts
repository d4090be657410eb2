import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { test } from "node:test";
import { listFolder } from "../folder-listing.ts";
import { ManifestFolder } from "../manifest-folder.ts";
import { RecordingLogger, serviceYaml, TempFolder } from "../testing/manifest-bench.ts";
import { ManifestReader } from "./manifest-reader.ts";
import { QuickReads } from "./quick-reads.ts";
import { isQuick, READ_LIMITS, type ThreadRequest } from "./reading.ts";

/** Escapes that YAML does not know cost far more than their share. */
const SLOW = serviceYaml("slow").replace("spec:", `  annotations:\n    note: "${"\\q".repeat(14_000)}"\nspec:`);

function requestFor(file: string): ThreadRequest {
  const { dev, ino } = statSync(file, { bigint: true });
  return {
    file,
    inode: `${dev}:${ino}`,
    knownDigest: undefined,
    refused: new Map(),
    refusedDigest: "",
    keepsPods: false,
  };
}

test("small files are read at once, YAML and JSON, with what is wrong with them", async () => {
  using temp = new TempFolder();
  temp.write("a.yaml", `${serviceYaml("a")}---\n${serviceYaml("b").replace("port: 80", "port: 0")}---\nkind: [`);
  temp.write(
    "c.json",
    JSON.stringify({
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "c" },
      spec: { clusterIP: "10.96.0.3", ports: [{ port: 80 }] },
    }),
  );
  const reads = new QuickReads(READ_LIMITS, 60_000);
  const yaml = await reads.read(requestFor(temp.at("a.yaml")));
  assert.ok(yaml?.kind === "read");
  assert.deepEqual(
    [...yaml.parsed.objects.values()].map(({ title }) => title),
    ["Service default/a"],
  );
  assert.deepEqual(
    yaml.parsed.problems.map(({ document, line }) => [document, line]),
    [
      [2, 17],
      [3, 19],
    ],
  );
  const json = await reads.read(requestFor(temp.at("c.json")));
  assert.ok(json?.kind === "read" && json.parsed.objects.size === 1);
  assert.deepEqual(await reads.read({ ...requestFor(temp.at("c.json")), knownDigest: json.digest }), {
    kind: "unchanged",
  });
  assert.deepEqual(await reads.read({ ...requestFor(temp.at("c.json")), inode: "0:1" }), { kind: "replaced" });
  assert.equal(Object.hasOwn(globalThis, Symbol.for("kube-proxy-ts.limited-work")), false);
});

test("what takes long is ended and left to the thread, and so is all that comes after it", async () => {
  using temp = new TempFolder();
  temp.write("slow.yaml", SLOW);
  temp.write("a.yaml", serviceYaml("a"));
  assert.ok(isQuick("slow.yaml", { size: SLOW.length, isLocal: true }));
  const reads = new QuickReads(READ_LIMITS, 1);
  assert.equal(await reads.read(requestFor(temp.at("slow.yaml"))), undefined);
  assert.equal(await reads.read(requestFor(temp.at("a.yaml"))), undefined);
});

test("no more than half a megabyte is read at once", async () => {
  using temp = new TempFolder();
  const text = JSON.stringify({ apiVersion: "v1", kind: "Service", metadata: { name: "c" }, spec: {} }).padEnd(200_000);
  temp.write("a.json", text);
  const reads = new QuickReads(READ_LIMITS, 60_000);
  const kinds: unknown[] = [];
  for (let round = 0; round < 4; round++) kinds.push((await reads.read(requestFor(temp.at("a.json"))))?.kind);
  assert.deepEqual(kinds, ["read", "read", "read", undefined]);
});

test("small files of this machine need no thread, others have one", async () => {
  using temp = new TempFolder();
  const threads = (): number => process.getActiveResourcesInfo().filter((name) => name === "MessagePort").length;
  for (const isLocal of [true, false]) {
    temp.write("a.yaml", serviceYaml("a"));
    using reader = new ManifestReader();
    const list: typeof listFolder = async (root) => {
      const listing = await listFolder(root);
      assert.deepEqual(
        [...listing.files.values()].map((file) => file.isLocal),
        [true],
      );
      return { ...listing, files: new Map([...listing.files].map(([path, file]) => [path, { ...file, isLocal }])) };
    };
    const folder = new ManifestFolder(temp.path, new RecordingLogger(), reader, list);
    let isLoading = true;
    let most = 0;
    const loading = folder.load().finally(() => {
      isLoading = false;
    });
    while (isLoading) {
      most = Math.max(most, threads());
      await new Promise((resolve) => setImmediate(resolve));
    }
    await loading;
    assert.equal(folder.records().services.size, 1);
    assert.equal(most, isLocal ? 0 : 1);
  }
});

test("large files have a thread: 32 KiB of YAML, 256 KiB of JSON, and all that is on another machine", () => {
  const cases = [
    ["a.yaml", 32_768, true],
    ["a.yaml", 32_769, false],
    ["a.json", 262_144, true],
    ["a.json", 262_145, false],
  ] as const;
  for (const [file, size, expected] of cases) assert.equal(isQuick(file, { size, isLocal: true }), expected, file);
  assert.equal(isQuick("a.yaml", { size: 1, isLocal: false }), false);
});
