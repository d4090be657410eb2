/**
 * What a change needs on its way is garbage before the young generation is collected. What outlives that fills the old generation, and
 * to collect that costs more than anything else that a change does.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { LAYOUT_NAMES, type LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import type { Nftables } from "../src/kernel/nftables/nftables.ts";
import { benchService, benchSlice, withReplacedEndpoint } from "./cluster.ts";
import { benchBackend } from "./nftables-subject.ts";
import { benchState } from "./subject.ts";

const SERVICES = 1_000;
const ENDPOINTS = 5;
const CHANGES_PER_SYNC = 5;
const SYNCS = 100;

/** What is remembered of a replaced endpoint, in the place of as much, is 1.5 kB (flat) or 2.0 kB. With a draft that outlives its commit: 4.1 and 2.9. */
const MOST_BYTES = 2_400;

// As in bin/kube-proxy.
setFlagsFromString("--no-allocation-site-pretenuring");
setFlagsFromString("--expose-gc");
const collect: (options: { readonly type: "minor" | "major" }) => void = runInNewContext("gc");

/** Takes everything, and holds nothing. */
const BOTTOMLESS: Nftables = {
  family: "ip",
  async transact(operations) {
    for (const _operation of operations);
  },
  read: async () => undefined,
  mark: async () => ({ generation: 1, commits: 0 }),
  generationIfUntouched: async () => undefined,
  readElements: async () => undefined,
  readCounters: async () => new Map(),
  watch: () => new Promise(() => {}),
};

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === "old_space")?.space_used_size ?? 0;
}

/** Bytes that came into the old generation for each change. */
async function survivingBytes(layout: LayoutName): Promise<number> {
  const state = benchState();
  const backend = benchBackend(BOTTOMLESS, layout);
  const slices = Array.from({ length: SERVICES }, (_, index) => benchSlice(index, ENDPOINTS));
  for (const [index, object] of slices.entries()) {
    state.onService({ kind: "add", object: benchService(index) });
    state.onEndpointSlice({ kind: "add", object });
  }
  const { signal } = new AbortController();
  const sync = async (isFullSync: boolean): Promise<void> => {
    const { services, endpoints, endpointCount } = state;
    const { changedPorts } = state.applyChanges();
    const cluster = { services, endpoints, endpointCount, zone: undefined, serviceCIDRs: ["10.96.0.0/12"] };
    await backend.sync({ ...cluster, isFullSync, changedPorts }, signal);
  };
  let at = 0;
  const change = async (syncs: number): Promise<void> => {
    for (let count = 0; count < syncs; count += 1) {
      for (let index = 0; index < CHANGES_PER_SYNC; index += 1) {
        const old = slices[at] ?? benchSlice(at, ENDPOINTS);
        const object = withReplacedEndpoint(old, at, 1);
        slices[at] = object;
        state.onEndpointSlice({ kind: "update", old, object });
        at += 1;
      }
      await sync(false);
      await new Promise((resolve) => setImmediate(resolve));
      collect({ type: "minor" });
    }
  };
  await sync(true);
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
