import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, statSync, utimesSync } from "node:fs";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../../kernel/child-process.ts";
import { ManifestFolder } from "../manifest-folder.ts";
import { RecordingLogger, serviceYaml, TempFolder } from "../testing/manifest-bench.ts";
import { ManifestReader } from "./manifest-reader.ts";
import type { ReadLimits, ReadRequest } from "./reading.ts";

/** Escapes that YAML does not know: each is an error, and all together cost seconds. */
const BAD_ESCAPES = "\\q".repeat(200_000);

function annotated(name: string, value: string, port = 80): string {
  return serviceYaml(name, port).replace("spec:", `  annotations:\n    note: "${value}"\nspec:`);
}

function requestFor(file: string): ReadRequest {
  const { dev, ino } = statSync(file, { bigint: true });
  return { file, inode: `${dev}:${ino}`, knownDigest: undefined };
}

/** A folder read once, and perhaps again after a change. */
class ReadOnce implements Disposable {
  readonly temp = new TempFolder();
  readonly log = new RecordingLogger();
  readonly reader: ManifestReader;
  readonly folder: ManifestFolder;
  #nowMs = 0;

  constructor(limits: Partial<ReadLimits> = {}) {
    this.reader = new ManifestReader({ limits });
    this.folder = new ManifestFolder(this.temp.path, this.log, this.reader);
  }

  async settle(): Promise<void> {
    do this.#nowMs += 1000;
    while ((await this.folder.refresh(this.#nowMs)).isUnsettled);
  }

  ports(): string[] {
    return Array.from(
      this.folder.records().services.values(),
      ({ record }) => `${record.name} ${record.ports[0]?.port}`,
    );
  }

  problems(): string[] {
    return this.folder.problems().map(({ document, object, message }) => `${document} ${object}: ${message}`);
  }

  [Symbol.dispose](): void {
    this.reader[Symbol.dispose]();
    this.temp[Symbol.dispose]();
  }
}

test("documents that take seconds to parse do not stop the event loop", async () => {
  using it = new ReadOnce();
  it.temp.write("a.yaml", `${annotated("a", BAD_ESCAPES)}---\n${serviceYaml("b")}`);
  it.temp.write("c.yaml", annotated("c", "x".repeat(10_000_000)));
  const delay = monitorEventLoopDelay({ resolution: 5 });
  const before = performance.eventLoopUtilization();
  const startMs = performance.now();
  delay.enable();
  await it.folder.load();
  delay.disable();
  const tookMs = performance.now() - startMs;
  const { active } = performance.eventLoopUtilization(before);
  assert.deepEqual(it.ports(), ["b 80", "c 80"]);
  assert.match(it.problems().join(), /^1 Service default\/a: cannot be parsed: Invalid escape/);
  const figures = `${Math.round(delay.max / 1e6)} ms at most, ${Math.round(active)} of ${Math.round(tookMs)} ms`;
  assert.ok(delay.max / 1e6 < tookMs / 4 && active < tookMs / 4, `the event loop was stopped: ${figures}`);
});

test("a document that takes too long is refused by name, its last version stays, the rest goes on", async () => {
  using it = new ReadOnce({ documentCpuMs: 400, documentCpuMsPerMiB: 0 });
  it.temp.write("a.yaml", [serviceYaml("a"), serviceYaml("b"), serviceYaml("c")].join("---\n"));
  await it.folder.load();
  await it.settle();
  it.temp.write("a.yaml", [serviceYaml("a", 81), annotated("b", BAD_ESCAPES, 81), serviceYaml("c", 81)].join("---\n"));
  it.temp.write("d.yaml", serviceYaml("d"));
  await it.settle();
  assert.deepEqual(it.ports().toSorted(), ["a 81", "b 80", "c 81", "d 80"]);
  assert.deepEqual(it.problems(), [
    "2 Service default/b: is not used: parsing it takes more than 400 ms of processor time; split or simplify it",
  ]);
  await it.settle();
  assert.equal(it.log.take().length, 1, "named once");
});

test("a document that is too large is refused by name, and one that takes too much memory", async () => {
  using it = new ReadOnce({ documentCharacters: 5_000_000, heapMiB: 48 });
  const many = `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: many\ndata: [${"{a: b}, ".repeat(400_000)}]\n`;
  it.temp.write("a.yaml", `${serviceYaml("a")}---\n${annotated("b", "x".repeat(5_000_000))}---\n${serviceYaml("c")}`);
  it.temp.write("m.yaml", `${serviceYaml("m")}---\n${many}---\n${serviceYaml("n")}`);
  await it.folder.load();
  assert.deepEqual(it.ports(), ["a 80", "c 80", "m 80", "n 80"]);
  const [large, full] = it.problems();
  assert.match(large ?? "", /^2 Service default\/b: is not parsed: it has 5000\d+ characters, and more than 5000000/);
  assert.match(full ?? "", /^2 ConfigMap default\/many: is not used: it takes more than 48 MiB of memory; split it/);
});

test("a file whose documents all take too long is left alone until it changes", async () => {
  using it = new ReadOnce({ documentCpuMs: 100, documentCpuMsPerMiB: 0 });
  it.temp.write("a.yaml", Array.from({ length: 5 }, (_, index) => annotated(`a${index}`, BAD_ESCAPES)).join("---\n"));
  it.temp.write("b.yaml", serviceYaml("b"));
  for (const name of ["a.yaml", "b.yaml"]) utimesSync(it.temp.at(name), 1, 1);
  await it.folder.load();
  assert.deepEqual(it.ports(), ["b 80"]);
  assert.match(it.problems().join(), /^0 : cannot be read: too many documents: parsing it takes more than 100 ms/);
  const startMs = performance.now();
  await it.settle();
  assert.ok(performance.now() - startMs < 400, "it was read once more");
});

test("the thread is given back, and started when there is something to read", async () => {
  using temp = new TempFolder();
  temp.write("a.yaml", serviceYaml("a"));
  const reader = new ManifestReader({ idleMs: 0 });
  const threads = (): number => process.getActiveResourcesInfo().filter((name) => name === "MessagePort").length;
  for (let round = 0; round < 2; round++) {
    assert.equal((await reader.read(requestFor(temp.at("a.yaml")))).kind, "read");
    const startMs = performance.now();
    while (threads() > 0 && performance.now() - startMs < 15_000)
      await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(threads(), 0);
  }
});

test("what the end of the program interrupts is no fault of the files, which are not complained of", async () => {
  using it = new ReadOnce();
  for (const name of ["a", "b", "c"]) it.temp.write(`${name}.yaml`, serviceYaml(name));
  const loading = it.folder.load();
  await new Promise((resolve) => setImmediate(resolve));
  it.reader[Symbol.dispose]();
  await loading;
  assert.deepEqual([it.log.lines, it.problems(), it.ports()], [[], [], []]);
});

test("a file that is another by now is not read", async () => {
  using temp = new TempFolder();
  using reader = new ManifestReader();
  temp.write("a.yaml", serviceYaml("a"));
  const request = requestFor(temp.at("a.yaml"));
  temp.replace("a.yaml", serviceYaml("a", 81));
  assert.deepEqual(await reader.read(request), { kind: "replaced" });
  temp.remove("a.yaml");
  assert.deepEqual(await reader.read(request), { kind: "replaced" });
  // A pipe would be waited for, were it opened as usual.
  execFileSync("mkfifo", [temp.at("a.yaml")]);
  assert.deepEqual(await reader.read(requestFor(temp.at("a.yaml"))), { kind: "replaced" });
});

test("a read that hangs holds up its own file system only, until it returns", async () => {
  using temp = new TempFolder();
  using reader = new ManifestReader({
    entry: new URL("../testing/hanging-thread.ts", import.meta.url),
    limits: { readMs: 300 },
  });
  temp.write("hang.yaml", serviceYaml("h"));
  temp.write("a.yaml", serviceYaml("a"));
  execFileSync("mkfifo", [temp.at("hang.yaml.pipe")]);
  const elsewhere = (file: string): ReadRequest => ({ file: temp.at(file), inode: "0:1", knownDigest: undefined });
  const hung = await reader.read(elsewhere("hang.yaml"));
  assert.match(hung.kind === "unreadable" ? hung.reason : hung.kind, /^reading it took more than 300 ms/);
  assert.equal((await reader.read(requestFor(temp.at("a.yaml")))).kind, "read", "with a new thread");
  const beside = await reader.read(elsewhere("a.yaml"));
  assert.match(beside.kind === "unreadable" ? beside.reason : beside.kind, /still hangs/);
  closeSync(openSync(temp.at("hang.yaml.pipe"), "w"));
  const startMs = performance.now();
  let again = beside;
  while (again.kind === "unreadable" && performance.now() - startMs < 15_000) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    again = await reader.read(elsewhere("a.yaml"));
  }
  assert.equal(again.kind, "replaced", "looked at again");
});

for (const which of ["read", "list"]) {
  test(`SIGTERM ends the program while the ${which} of a file server hangs`, async () => {
    using temp = new TempFolder();
    temp.write("hang.yaml", serviceYaml("h"));
    execFileSync("mkfifo", [temp.at("hang.yaml.pipe")]);
    const program = fileURLToPath(new URL("../testing/hanging-source-process.ts", import.meta.url));
    const child = spawn(process.execPath, [program, which, temp.path], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "exit");
    // It works on while the call hangs.
    for (let ticks = 0; ticks < 5; ticks++) await once(child.stdout, "data");
    signalChild(child, "SIGTERM");
    const patience = setTimeout(() => signalChild(child, "SIGKILL"), 15_000);
    assert.deepEqual(await ended, [0, null]);
    clearTimeout(patience);
  });
}
