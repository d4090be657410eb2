import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { leadingMaps } from "../../modes/ebpf/socket-balancer/maps.ts";
import { MAP_ELEMENT } from "./attributes.ts";
import { kernelBpf } from "./kernel-bpf.ts";
import { encode } from "./layout.ts";
import { addressOf, fixedBytes, tryBpf } from "./system-call.ts";
import { reasonToSkip } from "./testing/test-cgroup.ts";

async function collectGarbage(): Promise<void> {
  // A dereferenced WeakRef keeps its target alive until the turn ends.
  await setImmediate();
  setFlagsFromString("--expose-gc");
  runInNewContext("gc()");
}

test("what a call points to is there until it has returned, and no longer", async () => {
  const pointedTo = (): WeakRef<Uint8Array> => {
    const bytes = fixedBytes(64);
    addressOf(bytes);
    return new WeakRef(bytes);
  };
  const bytes = pointedTo();
  await collectGarbage();
  assert.notEqual(bytes.deref(), undefined);
  tryBpf("MAP_LOOKUP_ELEM", encode(MAP_ELEMENT, { mapFd: 0x7fff_ffff }));
  await collectGarbage();
  assert.equal(bytes.deref(), undefined);
});

test("memory of a map that is closed is empty, and reading it does not end the process", {
  skip: reasonToSkip(),
}, () => {
  const map = kernelBpf().createMap(leadingMaps("IPv4", { frontends: 8, slots: 8, backends: 8 }).slots);
  const words = map.words();
  words[3] = 7n;
  map.close();
  assert.deepEqual([words.length, words[3]], [0, undefined]);
});
