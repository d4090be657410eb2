import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLogger } from "../../../logging/logger.ts";
import { listFolder } from "./folder-listing.ts";
import { ManifestReader, readRegularFile } from "./manifest-reader.ts";
import { createManifestsSource, type ManifestsSourceOptions } from "./manifests-source.ts";
import { RecordingSink, serviceYaml, TempFolder } from "./testing/manifest-bench.ts";

/** The additions before the source is synced. */
async function atStart(options: Partial<ManifestsSourceOptions>): Promise<readonly string[]> {
  using temp = new TempFolder();
  temp.write("in/a.yaml", serviceYaml("a"));
  temp.write("b.yaml", serviceYaml("b"));
  const sink = new RecordingSink();
  const stop = new AbortController();
  const source = createManifestsSource({ dir: temp.path, log: silentLogger, ...options });
  const running = source.run(sink, stop.signal);
  await sink.until(() => sink.events.includes("synced endpointSlices"));
  stop.abort();
  await running;
  return sink.take().filter((event) => event.startsWith("add"));
}

/** Fails the first reads of the file, like a file server that is just coming back. */
function refusing(times: number): ManifestReader {
  let reads = 0;
  return new ManifestReader({
    readFile: async (file, ...more) => {
      if (file.endsWith("a.yaml") && ++reads <= times) throw new Error("EIO: i/o error, open");
      return await readRegularFile(file, ...more);
    },
  });
}

const BOTH = ["add services/default/b", "add services/default/a"];

test("a start waits for a file that cannot be read: the rules that are there would go with its Services", async () => {
  assert.deepEqual(await atStart({ reader: refusing(2) }), BOTH);
});

test("a start waits for a directory that cannot be listed, too", async () => {
  let looks = 0;
  const list: typeof listFolder = async (root) => {
    const { files, ...found } = await listFolder(root);
    if (++looks > 2) return { files, ...found };
    const seen = new Map([...files].filter(([file]) => !file.endsWith("a.yaml")));
    return { ...found, files: seen, unreadable: new Map([[`${root}/in`, "cannot be read: EIO"]]), isWhole: false };
  };
  assert.deepEqual(await atStart({ list }), BOTH);
});

test("what stays unreadable does not keep the others for long", async () => {
  assert.deepEqual(await atStart({ reader: refusing(1_000), startWaitMs: 700 }), ["add services/default/b"]);
});
