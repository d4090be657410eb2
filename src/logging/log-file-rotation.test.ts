import assert from "node:assert/strict";
import { closeSync, fstatSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { logFile } from "./log-file.ts";

describe("a log file whose folder has been removed when it is full", () => {
  it("touches no descriptor that is not its own", () => {
    const root = mkdtempSync(join(tmpdir(), "log-file-rotation-"));
    try {
      const folder = join(root, "logs");
      mkdirSync(folder);
      const write = logFile(join(folder, "kube-proxy.log"), 10);
      rmSync(folder, { recursive: true });
      write("stderr", "more than ten bytes\n"); // full
      write("stderr", "it cannot be begun again\n");
      // Stands for the next file that the daemon opens: a netlink socket, a connection to the API server, a file.
      const path = join(root, "of-someone-else");
      const other = openSync(path, "w+");
      write("stderr", "a line of the log\n");
      assert.equal(readFileSync(path, "utf8"), "", "the log wrote into another file");
      assert.doesNotThrow(() => fstatSync(other), "the log closed another file");
      closeSync(other);
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });
});
