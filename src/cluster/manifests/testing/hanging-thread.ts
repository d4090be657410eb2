/** Entry of a thread whose reads of files named `*hang*` wait in the system, as those from a file server that is gone. */
import { closeSync, openSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { readRegularFile } from "../reader/regular-file.ts";
import { serveReads } from "../reader/serve-reads.ts";

if (parentPort !== null) {
  serveReads({
    port: parentPort,
    ...workerData,
    readFile(file, inode, mostBytes) {
      // A pipe without a writer.
      if (file.includes("hang")) closeSync(openSync(`${file}.pipe`, "r"));
      return readRegularFile(file, inode, mostBytes);
    },
  });
}
