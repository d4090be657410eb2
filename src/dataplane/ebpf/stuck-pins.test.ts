/** What an earlier process has kept, and what cannot be removed of it. */
import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { BpfError } from "../../kernel/bpf/bpf-error.ts";
import { FolderLock } from "../../kernel/folder-lock.ts";
import { endPins } from "./node-pins.ts";

const BPF_MAGIC = 0xcafe4a11;

test("a folder in which something cannot be removed is not held against the process itself", async (t) => {
  t.mock.method(fs, "statfsSync", () => ({ type: BPF_MAGIC }));
  syncBuiltinESMExports();
  const pinFolder = fs.mkdtempSync(join(tmpdir(), "kpts-pins-"));
  const path = join(pinFolder, "7");
  const lock = new FolderLock(path);
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
    lock.release();
    fs.rmSync(pinFolder, { recursive: true });
  });
  fs.mkdirSync(path);
  const bpf = memoryBpf();
  bpf.pins.makeFolder(`${path}/IPv6/v4`);
  t.mock.method(bpf.pins, "remove", () => {
    throw new BpfError("EPERM", "bpf: as the test wants it: EPERM");
  });
  await assert.rejects(
    endPins(bpf, { ebpf: { pinFolder } }, () => 7n, { path, families: ["IPv4"] }),
    BpfError,
  );
  lock.hold(() => {});
});
