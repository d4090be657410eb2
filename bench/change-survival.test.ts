/**
 * What a change needs on its way is garbage before the young generation is collected. What survives that fills the old
 * generation, and collecting that costs more than anything else a change does.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { LAYOUT_NAMES, type LayoutName } from "../src/modes/nftables/layout-name.ts";
import { nftBackend } from "./backends.ts";
import { bottomless } from "./change-cost-subject.ts";
import { Subject } from "./subject.ts";

const SERVICES = 1_000;
const ENDPOINTS = 5;
const CHANGES_PER_SYNC = 5;
const SYNCS = 100;

/** A replaced endpoint's data, in place of as much, is 1.5 kB (flat) or 2.0 kB. With a draft that outlives its commit: 4.1 and 2.9. */
const MOST_BYTES = 2_400;

// As in bin/kube-proxy.
setFlagsFromString("--no-allocation-site-pretenuring");
setFlagsFromString("--expose-gc");
const collect: (options: { readonly type: "minor" | "major" }) => void = runInNewContext("gc");

const BOTTOMLESS = bottomless(async (operations) => {
  for (const _operation of operations);
});

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === "old_space")?.space_used_size ?? 0;
}

/** Bytes promoted to the old generation per change. */
async function survivingBytes(layout: LayoutName): Promise<number> {
  const subject = new Subject(ENDPOINTS, () => nftBackend(layout, BOTTOMLESS));
  subject.load(SERVICES);
  let at = 0;
  const change = async (syncs: number): Promise<void> => {
    for (let count = 0; count < syncs; count += 1) {
      for (let index = 0; index < CHANGES_PER_SYNC; index += 1) {
        subject.replaceEndpoint(at);
        at += 1;
      }
      await subject.syncChanges();
      await new Promise((resolve) => setImmediate(resolve));
      collect({ type: "minor" });
    }
  };
  await subject.fullSync();
  await change(SYNCS);
  collect({ type: "major" });
  const before = oldBytes();
  await change(SYNCS);
  return (oldBytes() - before) / (SYNCS * CHANGES_PER_SYNC);
}

for (const layout of LAYOUT_NAMES) {
  test(`${layout}: of a change no more outlives the young generation than is remembered of it`, async () => {
    const bytes = await survivingBytes(layout);
    assert.ok(bytes <= MOST_BYTES, `${bytes.toFixed(0)} bytes of each change; at most ${MOST_BYTES}`);
  });
}
