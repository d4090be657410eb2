/** Services are read before EndpointSlices, and nothing that happens to either list costs the other one. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/async/clock.ts";
import { until } from "../../testkit/support/patience.ts";
import type { Fault } from "./faults.ts";
import { fastClock, type SourceUnderTest } from "./source-under-test.ts";
import { COUNT, failing, some, start } from "./source-with-objects.ts";
import type { TestApiServer } from "./test-api-server.ts";

const SLOW: Fault = { kind: "slow", pieceBytes: 300, delayMs: 20 };
const SILENT: Fault = { kind: "silent" };

/** Services come as the fault has it, and the list of slices is answered at once. */
async function startWith(
  t: Parameters<typeof start>[0],
  fault: Fault,
  { hasWatchList = true, clock = systemClock } = {},
): Promise<SourceUnderTest & { readonly recover: () => void; readonly heard: ReadonlySet<string> }> {
  let recover = () => {};
  const heard = new Set<string>();
  const prepare = (server: TestApiServer): void => {
    some(server);
    server.switches.hasWatchList = hasWatchList;
    recover = failing(server, "services", fault);
  };
  const source = await start(t, { prepare, clock, waitsForSync: false, onHeard: (plural) => void heard.add(plural) });
  return { ...source, recover: () => recover(), heard };
}

for (const hasWatchList of [true, false]) {
  test(`slices wait for the Services, ${hasWatchList ? "streamed" : "in pages"}`, async (t) => {
    const { sink, server, heard } = await startWith(t, SLOW, { hasWatchList });
    const { services, endpointSlices } = sink.events;
    await until("the request for slices", () =>
      hasWatchList ? heard.has("endpointslices") : server.seen("list", "endpointslices").length > 0,
    );
    const before = services.length;
    await until("more Services", () => services.length >= before + 3);
    assert.deepEqual(endpointSlices, []);
    assert.equal(sink.synced.includes("services"), false, "the list was whole too soon for this test");
    await until("the slices", () => sink.synced.includes("endpointSlices"));
    assert.ok(sink.synced.indexOf("services") < sink.synced.indexOf("endpointSlices"));
    assert.equal(endpointSlices.length, COUNT);
  });
}

test("they do not wait for Services of which nothing comes", async (t) => {
  const { sink, recover } = await startWith(t, SILENT);
  await until("the slices", () => sink.synced.includes("endpointSlices"));
  assert.deepEqual(sink.events.services, []);
  recover();
});

test("slices whose connection is cut while they wait are asked for again", async (t) => {
  const { sink, server, ended, heard } = await startWith(t, SLOW);
  await until("the answer to slices", () => heard.has("endpointslices"));
  for (const watch of server.watches("endpointslices")) watch.cut();
  await Promise.race([ended, until("both", () => sink.synced.length === 4)]);
  assert.equal(sink.events.endpointSlices.length, COUNT);
});

test("the end of the program is not waited for", async (t) => {
  // On this clock the wait for silent Services takes ten seconds.
  const { heard, stop } = await startWith(t, SILENT, { clock: fastClock(0.1) });
  await until("the answer to slices", () => heard.has("endpointslices"));
  const startMs = performance.now();
  await stop();
  assert.ok(performance.now() - startMs < 5_000);
});
