import assert from "node:assert/strict";
import { mkdirSync, renameSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { listFolder } from "./folder-listing.ts";
import { createManifestsSource, type ManifestsSource } from "./manifests-source.ts";
import { RecordingLogger, RecordingSink, serviceYaml, sliceYaml, TempFolder } from "./testing/manifest-bench.ts";

interface Running {
  readonly temp: TempFolder;
  readonly sink: RecordingSink;
  readonly log: RecordingLogger;
  readonly source: ManifestsSource;
}

/** Runs a source that only file system events wake, while `act` changes the folder. */
async function whileRunning(
  files: Record<string, string>,
  act: (running: Running) => Promise<void>,
  under = "",
): Promise<void> {
  using temp = new TempFolder();
  for (const [name, text] of Object.entries(files)) temp.write(name, text);
  const sink = new RecordingSink();
  const log = new RecordingLogger();
  const source = createManifestsSource({ dir: temp.at(under), log, rescanMs: 60_000 });
  const stop = new AbortController();
  const running = source.run(sink, stop.signal);
  try {
    await Promise.race([sink.until(() => sink.events.includes("synced endpointSlices")), running]);
    await act({ temp, sink, log, source });
  } finally {
    stop.abort();
    await running;
  }
}

function portOf(sink: RecordingSink, name: string): unknown {
  const found = sink.current.get(`services/default/${name}`);
  return typeof found === "object" && found !== null && "ports" in found ? JSON.stringify(found.ports) : undefined;
}

test("everything is delivered first, then each kind is synced once", async () => {
  await whileRunning({ "a.yaml": `${sliceYaml("s", "a")}---\n${serviceYaml("a")}` }, async ({ sink }) => {
    assert.deepEqual(sink.take(), [
      "add services/default/a",
      "add endpointSlices/default/s",
      "synced nodes",
      "synced serviceCIDRs",
      "synced services",
      "synced endpointSlices",
    ]);
  });
});

test("an empty folder is synced too", async () => {
  await whileRunning({}, async ({ sink }) => assert.equal(sink.events.length, 4));
});

test("edits, replacements, new and removed files and directories are seen at once", async () => {
  await whileRunning({ "a.yaml": serviceYaml("a") }, async ({ temp, sink }) => {
    temp.write("a.yaml", serviceYaml("a", 81));
    await sink.until(() => portOf(sink, "a")?.toString().includes("81") === true);
    temp.replace("a.yaml", serviceYaml("a", 82));
    await sink.until(() => portOf(sink, "a")?.toString().includes("82") === true);
    temp.write("new/deep/b.yaml", serviceYaml("b"));
    await sink.until(() => sink.current.has("services/default/b"));
    temp.write("new/deep/b.yaml", serviceYaml("b", 83));
    await sink.until(() => portOf(sink, "b")?.toString().includes("83") === true);
    renameSync(temp.at("new"), temp.at("renamed"));
    temp.write("renamed/c.yaml", serviceYaml("c"));
    await sink.until(() => sink.current.has("services/default/c"));
    temp.remove("renamed");
    await sink.until(() => sink.current.size === 1);
    assert.deepEqual(
      sink.take().filter((event) => !event.startsWith("synced")),
      [
        "add services/default/a",
        "update services/default/a",
        "update services/default/a",
        "add services/default/b",
        "update services/default/b",
        "add services/default/c",
        "delete services/default/c",
        "delete services/default/b",
      ],
    );
  });
});

test("a ConfigMap update is seen at once", async () => {
  await whileRunning({ "..v1/a.yaml": serviceYaml("a") }, async ({ temp, sink }) => {
    symlinkSync("..v1", temp.at("..data"));
    symlinkSync("..data/a.yaml", temp.at("a.yaml"));
    await sink.until(() => sink.current.has("services/default/a"));
    temp.write("..v2/a.yaml", serviceYaml("a", 81));
    symlinkSync("..v2", temp.at("..data_tmp"));
    renameSync(temp.at("..data_tmp"), temp.at("..data"));
    temp.remove("..v1");
    await sink.until(() => portOf(sink, "a")?.toString().includes("81") === true);
  });
});

test("the folder may be lost and come back, nothing is deleted meanwhile", async () => {
  const act = async ({ temp, sink, log }: Running): Promise<void> => {
    temp.remove("in");
    await sink.until(() => log.lines.some((line) => line.includes("Cannot read the manifests")));
    assert.ok(sink.current.has("services/default/a"));
    mkdirSync(temp.at("in"));
    temp.write("in/b.yaml", serviceYaml("b"));
    await sink.until(() => sink.current.has("services/default/b") && !sink.current.has("services/default/a"));
    temp.write("in/b.yaml", serviceYaml("b", 81));
    await sink.until(() => portOf(sink, "b")?.toString().includes("81") === true);
  };
  await whileRunning({ "in/a.yaml": serviceYaml("a") }, act, "in");
});

test("problems can be asked for and go away", async () => {
  await whileRunning({ "a.yaml": serviceYaml("a", 0) }, async ({ temp, sink, source, log }) => {
    assert.equal(source.problems()[0]?.field, "spec.ports[0].port");
    assert.equal(log.take().length, 1);
    temp.write("a.yaml", serviceYaml("a"));
    await sink.until(() => sink.current.has("services/default/a"));
    assert.deepEqual(source.problems(), []);
  });
});

test("a lost event is made up for by looking now and then", async () => {
  using outside = new TempFolder();
  outside.write("x/a.yaml", serviceYaml("a"));
  symlinkSync("x", outside.at("link"));
  // The link above the folder is replaced, which causes no event in a watched directory.
  const sink = new RecordingSink();
  const stop = new AbortController();
  mkdirSync(outside.at("x/in"));
  outside.write("x/in/a.yaml", serviceYaml("a"));
  outside.write("y/in/a.yaml", serviceYaml("a", 81));
  const source = createManifestsSource({ dir: outside.at("link/in"), log: new RecordingLogger(), rescanMs: 50 });
  const running = source.run(sink, stop.signal);
  await sink.until(() => sink.events.includes("synced endpointSlices"));
  symlinkSync("y", outside.at("link2"));
  renameSync(outside.at("link2"), outside.at("link"));
  await sink.until(() => portOf(sink, "a")?.toString().includes("81") === true);
  stop.abort();
  await running;
});

test("a folder in which nothing changes is left alone until the next look is due", async () => {
  using temp = new TempFolder();
  temp.write("a.yaml", serviceYaml("a"));
  let looks = 0;
  const sink = new RecordingSink();
  const stop = new AbortController();
  const running = createManifestsSource({
    ...{ dir: temp.path, log: new RecordingLogger(), rescanMs: 60_000, debounceMs: 1 },
    list: (...given) => {
      looks++;
      return listFolder(...given);
    },
  }).run(sink, stop.signal);
  await sink.until(() => sink.events.includes("synced endpointSlices"));
  // A file that was just written is checked again until it has settled.
  let before: number;
  do {
    before = looks;
    await setTimeout(200);
  } while (looks > before && looks < 200);
  stop.abort();
  await running;
  assert.ok(looks < 200, `${looks} looks`);
});

test("a folder that is not there at the start rejects and is named", async () => {
  using temp = new TempFolder();
  const source = createManifestsSource({ dir: temp.at("missing"), log: new RecordingLogger() });
  await assert.rejects(
    source.run(new RecordingSink(), new AbortController().signal),
    /cannot read the manifests in .*missing/,
  );
});

test("stopping before or during the wait ends the run", async () => {
  using temp = new TempFolder();
  const source = createManifestsSource({ dir: temp.path, log: new RecordingLogger() });
  await source.run(new RecordingSink(), AbortSignal.abort());
});
