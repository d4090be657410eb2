/** What an earlier process left in the usual folder, after another folder is configured. */
import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { type TestContext, test } from "node:test";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { USUAL_FOLDER } from "../../kernel/bpf/places.ts";
import { FolderLock } from "../../kernel/folder-lock.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import { endPins } from "./node-pins.ts";
import { memoryMaps } from "./socket-balancer/maps.ts";

const BPF_MAGIC = 0xcafe4a11;
const KEPT = "/sys/fs/bpf/kept";

/** Pins maps of both families in both folders. @returns those left after a process has started in one of them. */
async function leftIn(t: TestContext, pinFolder: string, families: readonly IpFamily[]): Promise<readonly string[]> {
  // Restoring a method that was mocked twice would leave the first mock in place, for every file of the batch.
  t.mock.restoreAll();
  t.mock.method(fs, "statfsSync", () => ({ type: BPF_MAGIC }));
  t.mock.method(FolderLock.prototype, "hold", () => {});
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  const bpf = memoryBpf();
  const folders = [USUAL_FOLDER, KEPT].flatMap((folder) => IP_FAMILIES.map((family) => `${folder}/7/${family}`));
  for (const folder of folders) {
    bpf.pins.makeFolder(`${folder}/v6`);
    const { connected } = memoryMaps(folder.endsWith("4") ? "IPv4" : "IPv6", 8);
    bpf.pins.pin(bpf.createMap(connected), `${folder}/v6/${connected.name}`);
  }
  const path = `${pinFolder === "" ? USUAL_FOLDER : pinFolder}/7`;
  await endPins(bpf, { ebpf: { pinFolder } }, () => 7n, { path, families });
  return folders.filter((folder) => bpf.pins.list(folder) !== undefined);
}

test("it ends, for all families, and what is in the configured folder stays", async (t) => {
  assert.deepEqual(await leftIn(t, KEPT, IP_FAMILIES), [`${KEPT}/7/IPv4`, `${KEPT}/7/IPv6`]);
});

test("of the folder that is used, what is of families that are not served any more ends", async (t) => {
  const usual = [`${USUAL_FOLDER}/7/IPv4`];
  const others = [`${KEPT}/7/IPv4`, `${KEPT}/7/IPv6`];
  assert.deepEqual(await leftIn(t, "", ["IPv4"]), [...usual, ...others]);
  assert.deepEqual(await leftIn(t, `${USUAL_FOLDER}/`, ["IPv4"]), [...usual, ...others], "under another name");
});
