/** Pins of an earlier process that cannot be removed. */
import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { BpfError } from "../../kernel/bpf/bpf-error.ts";
import { USUAL_FOLDER } from "../../kernel/bpf/places.ts";
import { FolderLock } from "../../kernel/folder-lock.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import { endPins } from "./node-pins.ts";

const BPF_MAGIC = 0xcafe4a11;

/** The lockable folder of a network namespace, on a fake bpf file system. */
function scene(t: TestContext) {
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
  const end = (families: readonly IpFamily[] = ["IPv4"]) =>
    endPins(bpf, { ebpf: { pinFolder } }, () => 7n, { path, families });
  return { bpf, path, lock, end };
}

test("a folder in which something cannot be removed is not held against the process itself", async (t) => {
  const { bpf, path, lock, end } = scene(t);
  bpf.pins.makeFolder(`${path}/IPv6/v6`);
  t.mock.method(bpf.pins, "remove", () => {
    throw new BpfError("EPERM", "bpf: as the test wants it: EPERM");
  });
  await assert.rejects(end(), BpfError);
  lock.hold(() => {});
});

test("a folder that another process uses is none of which something cannot be removed, when nothing is to be", async (t) => {
  const { bpf, path, lock, end } = scene(t);
  bpf.pins.makeFolder(`${path}/IPv4/v6`);
  bpf.pins.makeFolder(`${path}/IPv6/v6`);
  lock.hold(() => {});
  await end(IP_FAMILIES);
  await assert.rejects(end(), { name: "FolderInUse" });
});

test("what cannot be removed in one folder, or of one family, keeps nothing else from being removed", async (t) => {
  const { bpf, path, end } = scene(t);
  t.mock.method(FolderLock.prototype, "hold", () => {});
  const usual = `${USUAL_FOLDER}/7`;
  for (const folder of [usual, path]) for (const family of IP_FAMILIES) bpf.pins.makeFolder(`${folder}/${family}/v6`);
  const { remove } = bpf.pins;
  t.mock.method(bpf.pins, "remove", (name: string) => {
    if (name.startsWith(`${usual}/IPv4`)) throw new BpfError("EPERM", "bpf: as the test wants it: EPERM");
    return remove(name);
  });
  await assert.rejects(end([]), BpfError);
  assert.deepEqual([bpf.pins.list(usual), bpf.pins.list(path)], [["IPv4"], undefined]);
});
