/** A watch whose server never stops writing still yields to the event loop. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { service } from "../../../../../test/apiserver/example-objects.ts";
import { RecordingSink } from "../../../../../test/apiserver/recording-sink.ts";
import { BusyClock } from "../../../../../testkit/support/processor-wait.ts";
import { createLogger } from "../../../../logging/create-logger.ts";
import { ObjectCache } from "./object-cache.ts";
import { CLUSTER_RESOURCES } from "./resources.ts";
import { followWatch } from "./watch-reader.ts";

const [services] = CLUSTER_RESOURCES;
const CHUNK_BYTES = 65_536;
const FLOOD_MS = 1_000;

const line = (event: unknown) => `${JSON.stringify(event)}\n`;
const version = (index: number) => String(1_000 + index);

function changeOf(type: string, index: number, name: number) {
  const object = service(name);
  return line({ type, object: { ...object, metadata: { ...object.metadata, resourceVersion: version(index) } } });
}

const FLOODS: readonly (readonly [string, (index: number) => string])[] = [
  ["blank lines", () => "\n".repeat(CHUNK_BYTES)],
  ["bookmarks", (index) => line({ type: "BOOKMARK", object: { metadata: { resourceVersion: version(index) } } })],
  ["changes of one object", (index) => changeOf("MODIFIED", index, 1)],
  ["ever new objects", (index) => changeOf("ADDED", index, index)],
  [
    "objects that cannot be used",
    (index) => line({ type: "ADDED", object: { metadata: { name: `s${index}`, namespace: "d" }, spec: 7 } }),
  ],
  [
    "deep objects",
    (index) => {
      const deep = `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`;
      return `{"type":"ADDED","object":{"metadata":{"name":"s${index}","namespace":"d"},"spec":${deep}}}\n`;
    },
  ],
];

/** Chunks that are always ready, as from a socket that fills faster than it is read. */
async function* flood(text: (index: number) => string, isOver: () => boolean): AsyncGenerator<Buffer> {
  const parts = Array.from({ length: 50 }, (_, index) => text(index));
  const all = Buffer.from(parts.join(""));
  while (!isOver()) {
    for (let start = 0; start < all.length && !isOver(); start += CHUNK_BYTES) {
      yield all.subarray(start, start + CHUNK_BYTES);
    }
  }
}

for (const [what, text] of FLOODS) {
  test(`an endless watch of ${what} lets timers fire and ends with its body`, async () => {
    const lines: string[] = [];
    const log = createLogger({ write: (_stream, text) => void lines.push(text) });
    const cache = new ObjectCache(services, new RecordingSink(), log);
    const clock = new BusyClock("self");
    const endMs = performance.now() + FLOOD_MS;
    let lastMs = 0;
    let longestMs = 0;
    const timer = setInterval(() => {
      const nowMs = clock.elapsedMs();
      longestMs = Math.max(longestMs, nowMs - lastMs);
      lastMs = nowMs;
    }, 1);
    const body = flood(text, () => performance.now() > endMs);
    await followWatch(
      {
        resource: services,
        transport: { host: "server", send: async () => ({ contentType: "application/json", body }) },
        cache,
        query: {},
        accept: "",
        answerMs: 1_000,
        onProgress() {},
        onVersion() {},
        onOpen() {},
      },
      new AbortController().signal,
      // The flood ends in the middle of a line.
    ).catch((error: unknown) => assert.match(String(error), /ends in the middle of an event/));
    clearInterval(timer);
    longestMs = Math.max(longestMs, clock.elapsedMs() - lastMs);
    // Without yielding this would be all of FLOOD_MS.
    assert.ok(longestMs < FLOOD_MS / 2, `nothing else ran for ${longestMs.toFixed(0)} ms`);
    assert.ok(lines.length <= 102, `${lines.length} lines of the log`);
  });
}
