/**
 * A program with a manifests source whose file reads (`read`) or listings (`list`) hang in the kernel; SIGTERM ends it.
 * Arguments: `read` or `list`, and the folder.
 */
import { open } from "node:fs/promises";
import path from "node:path";
import { silentLogger } from "../../../../logging/logger.ts";
import { listFolder } from "../folder-listing.ts";
import { ManifestReader, readRegularFile } from "../manifest-reader.ts";
import { createManifestsSource } from "../manifests-source.ts";

const [which, dir = ""] = process.argv.slice(2);
const stop = new AbortController();
process.on("SIGTERM", () => {
  stop.abort();
  // As in the daemon, in case something keeps the process alive.
  setTimeout(() => process.exit(0), 1000).unref();
});
// Shows that the main thread is not blocked.
const alive = setInterval(() => process.stdout.write("alive\n"), 200);
const source = createManifestsSource({
  dir,
  log: silentLogger,
  reader: new ManifestReader({
    readFile: async (file, ...more) => {
      // A pipe without a writer.
      if (which === "read") await open(`${file}.pipe`, "r");
      return await readRegularFile(file, ...more);
    },
  }),
  list: async (root) => {
    if (which === "list") await open(path.join(root, "hang.yaml.pipe"), "r");
    return await listFolder(root);
  },
});
await source.run({ onEvent() {}, onSynced() {} }, stop.signal);
clearInterval(alive);
