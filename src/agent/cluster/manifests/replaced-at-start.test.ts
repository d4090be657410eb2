import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLogger } from "../../../logging/logger.ts";
import { ManifestReader, readRegularFile } from "./manifest-reader.ts";
import { createManifestsSource } from "./manifests-source.ts";
import { RecordingSink, serviceYaml, TempFolder } from "./testing/manifest-bench.ts";

/** How a deployment tool replaces a file between the look and the read. */
const REPLACEMENTS: readonly (readonly [title: string, act: (temp: TempFolder) => void])[] = [
  ["replaced", (temp) => temp.replace("a.yaml", serviceYaml("a"))],
  [
    "gone for a moment",
    (temp) => {
      temp.remove("a.yaml");
      setTimeout(() => temp.write("a.yaml", serviceYaml("a")), 100);
    },
  ],
];

for (const [title, act] of REPLACEMENTS) {
  test(`a file that is ${title} between the look and the read is part of what there is at the start`, async () => {
    using temp = new TempFolder();
    temp.write("a.yaml", serviceYaml("a"));
    let isReplaced = false;
    const reader = new ManifestReader({
      readFile: async (file, ...more) => {
        if (!isReplaced) act(temp);
        isReplaced = true;
        return await readRegularFile(file, ...more);
      },
    });
    const stop = new AbortController();
    const sink = new RecordingSink();
    const running = createManifestsSource({ dir: temp.path, log: silentLogger, reader }).run(sink, stop.signal);
    await sink.until(() => sink.events.includes("synced endpointSlices"));
    stop.abort();
    await running;
    assert.equal(sink.take()[0], "add services/default/a");
  });
}
