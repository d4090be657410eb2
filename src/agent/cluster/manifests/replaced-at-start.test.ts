import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLogger } from "../../../logging/logger.ts";
import { ManifestReader, readRegularFile } from "./manifest-reader.ts";
import { createManifestsSource } from "./manifests-source.ts";
import { serviceYaml, TempFolder } from "./testing/manifest-bench.ts";

test("a file that is replaced between the look and the read is part of what there is at the start", async () => {
  using temp = new TempFolder();
  temp.write("a.yaml", serviceYaml("a"));
  let isReplaced = false;
  const reader = new ManifestReader({
    readFile: async (file, ...more) => {
      // The deployment tool rewrites the file with the same text at this moment.
      if (!isReplaced) temp.replace("a.yaml", serviceYaml("a"));
      isReplaced = true;
      return await readRegularFile(file, ...more);
    },
  });
  const stop = new AbortController();
  const events: string[] = [];
  const source = createManifestsSource({ dir: temp.path, log: silentLogger, reader });
  const running = source.run(
    {
      onEvent: (kind, event) => void events.push(`${event.kind} ${kind}`),
      onSynced: (kind) => {
        events.push(`synced ${kind}`);
      },
    },
    stop.signal,
  );
  for (let n = 0; n < 100 && !events.includes("add services"); n++) await new Promise((done) => setTimeout(done, 10));
  stop.abort();
  await running;
  assert.ok(events.indexOf("add services") < events.indexOf("synced services"), events.join(", "));
});
