import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { open } from "node:fs/promises";
import { test } from "node:test";
import { stretched } from "../../../../testkit/support/patience.ts";
import { BusyClock } from "../../../../testkit/support/processor-wait.ts";
import { ManifestFolder } from "./manifest-folder.ts";
import { ManifestReader, type ReadLimits, readRegularFile } from "./manifest-reader.ts";
import { RecordingLogger, serviceYaml, TempFolder } from "./testing/manifest-bench.ts";

function annotated(name: string, value: string, port = 80): string {
  return serviceYaml(name, port).replace("spec:", `  annotations:\n    note: "${value}"\nspec:`);
}

/** A folder that is read once, and may be read again after a change. */
class ReadOnce implements Disposable {
  readonly temp = new TempFolder();
  readonly log = new RecordingLogger();
  readonly folder: ManifestFolder;
  #nowMs = 0;

  constructor(limits: Partial<ReadLimits> = {}) {
    this.folder = new ManifestFolder(this.temp.path, this.log, new ManifestReader({ limits }));
  }

  async settle(): Promise<void> {
    do this.#nowMs += 1000;
    while ((await this.folder.refresh(this.#nowMs)).isUnsettled);
  }

  ports(): string[] {
    return Array.from(this.folder.records().services.values(), ({ name, ports }) => `${name} ${ports[0]?.port}`);
  }

  problems(): string[] {
    return this.folder.problems().map(({ document, object, message }) => `${document} ${object}: ${message}`);
  }

  [Symbol.dispose](): void {
    this.temp[Symbol.dispose]();
  }
}

/** The longest time that `work` blocked the event loop, without waits for a CPU. */
async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let turn = new BusyClock("self");
  const look = (): void => {
    longest = Math.max(longest, turn.elapsedMs());
    turn = new BusyClock("self");
  };
  const looking = setInterval(look, 5);
  await work();
  clearInterval(looking);
  look();
  return longest;
}

test("thousands of files, documents and items of lists are read with turns for everything else between them", async () => {
  using it = new ReadOnce();
  const names = Array.from({ length: 2_000 }, (_, index) => `s${index}`);
  for (const name of names.slice(0, 500)) it.temp.write(`${name}.yaml`, serviceYaml(name));
  it.temp.write("docs.yaml", names.map((name) => serviceYaml(`d${name}`)).join("---\n"));
  const spec = { clusterIP: "10.96.0.1", ports: [{ port: 80 }] };
  const items = names.map((name) => ({ apiVersion: "v1", kind: "Service", metadata: { name: `l${name}` }, spec }));
  it.temp.write("list.json", JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  // The first read loads modules, which is not measured.
  await new ManifestReader().read(it.temp.at("s0.yaml"));
  const heldMs = await longestTurnMs(() => it.folder.load());
  assert.equal(it.ports().length, 4_500);
  assert.ok(heldMs < stretched(150), `the event loop was held for ${Math.round(heldMs)} ms`);
});

test("a document that is too large is refused by its place", async () => {
  using it = new ReadOnce({ documentCharacters: 500_000 });
  it.temp.write("a.yaml", `${serviceYaml("a")}---\n${annotated("b", "x".repeat(500_000))}---\n${serviceYaml("c")}`);
  await it.folder.load();
  assert.deepEqual(it.ports(), ["a 80", "c 80"]);
  assert.match(it.problems().join(), /^2 : is not parsed: it has 500\d+ characters, more than the limit of 500000;/);
  assert.equal(it.folder.problems()[0]?.line, 9);
});

test("a file that is gone or a pipe by now is not read", async () => {
  using temp = new TempFolder();
  const reader = new ManifestReader();
  const file = temp.at("a.yaml");
  assert.deepEqual(await reader.read(file), { kind: "gone" });
  // A plain open of a pipe would wait for a writer.
  execFileSync("mkfifo", [file]);
  assert.deepEqual(await reader.read(file), { kind: "unreadable", reason: "it is not a regular file" });
});

test("a text that is known is not parsed again", async () => {
  using temp = new TempFolder();
  const reader = new ManifestReader();
  temp.write("a.json", "{}");
  const first = await reader.read(temp.at("a.json"));
  assert.ok(first.kind === "read");
  assert.deepEqual(await reader.read(temp.at("a.json"), first.digest), { kind: "unchanged" });
});

test("a file that is too large is not read, for it would be with every look", async (t) => {
  using temp = new TempFolder();
  temp.write("a.yaml", "# 9 bytes");
  const file = temp.at("a.yaml");
  await using handle = await open(file);
  const reads = t.mock.method(Object.getPrototypeOf(handle), "read");
  await assert.rejects(readRegularFile(file, 8), /^Error: it is larger than 8 bytes; split it$/);
  assert.equal(reads.mock.callCount(), 0);
  assert.equal((await readRegularFile(file, 9)).length, 9);
});
