/** The API source with a server that no longer knows the requested versions: the events are minimal. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { putOffMs } from "../../src/agent/cluster/apiserver/watch/reflector-times.ts";
import { until } from "../../testkit/support/patience.ts";
import { service } from "./example-objects.ts";
import { settled } from "./source-under-test.ts";
import { COUNT, cutServices, notingClock, some, start } from "./source-with-objects.ts";

for (const [how, refusesOldWatches, hasWatchList] of [
  ["an ERROR event, then a streamed list", false, true],
  ["an ERROR event, then pages", false, false],
  ["a status, then a streamed list", true, true],
] as const) {
  test(`lost history (${how}) becomes the smallest set of events`, async (t) => {
    const source = await start(t, {
      prepare: (server) => {
        server.switches.refusesOldWatches = refusesOldWatches;
        server.switches.hasWatchList = hasWatchList;
        some(server);
      },
    });
    const { server, sink, log } = source;
    await until("the watch", () => server.watches("services").length === 1);
    sink.take("services");
    for (const watch of server.watches("services")) watch.pause();
    server.put("services", service(1, { type: "NodePort" }), service(50));
    server.delete("services", service(2));
    server.store.compact();
    cutServices(server);
    await settled(source, "services");
    assert.deepEqual(sink.take("services").toSorted(), [
      "add default/svc-50",
      "delete default/svc-2",
      "update default/svc-1",
    ]);
    assert.deepEqual(log.errors(), [], "that is ordinary");
  });
}

test("a version from which every watch ends with an internal error is left by a list", async (t) => {
  const source = await start(t);
  const { server, sink } = source;
  await until("the watch", () => server.watches("services").length === 1);
  sink.take("services");
  // An event that the server cannot read, such as a deleted corrupt object, ends each watch that would deliver it.
  const status = { kind: "Status", status: "Failure", reason: "StoreReadError", code: 500, message: "corrupt object" };
  const text = `${JSON.stringify({ type: "ERROR", object: status })}\n`;
  const isFromVersion = (query: URLSearchParams) => !query.has("sendInitialEvents");
  const lists = () => server.seen("watch", "services").filter(({ query }) => !isFromVersion(query)).length;
  server.switches.fault = ({ plural, verb, query }) =>
    plural === "services" && verb === "watch" && isFromVersion(query) && lists() === 1
      ? { kind: "text", contentType: "application/json", text }
      : undefined;
  for (const watch of server.watches("services")) watch.pause();
  server.delete("services", service(2));
  cutServices(server);
  await until("the deletion", () => !sink.state.services.has("default/svc-2"));
  assert.equal(lists(), 2);
});

test("pages that expire on the way are read again as a whole", async (t) => {
  const source = await start(t, {
    waitsForSync: false,
    prepare: (server) => {
      server.switches.hasWatchList = false;
      for (let index = 0; index < 1_200; index++) server.put("services", service(index));
      server.switches.fault = ({ plural, query }) => {
        if (plural !== "services" || !query.has("continue")) return undefined;
        server.pages.expireTokens();
        server.delete("services", service(0));
        return undefined;
      };
    },
  });
  await until("the services", () => source.sink.synced.includes("services"));
  const lists = source.server
    .seen("list", "services")
    .map(({ query }) => `${query.get("limit")} ${query.has("continue")}`);
  assert.deepEqual(lists, ["500 false", "500 true", "null false"]);
  const events = source.sink.take("services");
  assert.equal(events.length, 1_201, "each was added once");
  assert.equal(events.at(-1), "delete default/svc-0", "it was on the first page and is gone");
});

for (const hasWatchList of [true, false]) {
  test(`a server restored from an older backup is followed back (streamed lists: ${hasWatchList})`, async (t) => {
    const source = await start(t, {
      prepare: (s) => {
        some(s);
        s.switches.hasWatchList = hasWatchList;
      },
    });
    const { server, sink } = source;
    await until("the watch", () => server.watches("services").length === 1);
    sink.take("services");
    // It looks the same to the client if its version is ahead, so that the server has never seen it.
    server.store.rewind(50);
    server.delete("services", service(3));
    cutServices(server);
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), ["delete default/svc-3"]);
  });
}

for (const streamsLists of [true, false]) {
  test(`a server that refuses lists from a version it forgot is asked for the newest (streams: ${streamsLists})`, async (t) => {
    const source = await start(t, { streamsLists });
    const { server, sink } = source;
    await until("the watch", () => server.watches("services").length === 1);
    sink.take("services");
    server.switches.fault = ({ plural, verb, query }) => {
      const isList = verb === "list" || query.has("sendInitialEvents");
      const isOfVersion = (query.get("resourceVersion") ?? "") !== "";
      return plural === "services" && isList && isOfVersion ? { kind: "status", code: 410 } : undefined;
    };
    for (const watch of server.watches("services")) watch.pause();
    server.delete("services", service(2));
    server.store.compact();
    cutServices(server);
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), ["delete default/svc-2"]);
  });
}

test("a streamed list that never ends is given up for pages", async (t) => {
  const { sink, server } = await start(t, {
    times: { streamIdleMs: 10_000 },
    prepare: (s) => {
      some(s);
      s.switches.fault = ({ verb, plural }) =>
        verb === "watch" && plural === "services" && s.seen("list", "services").length === 0
          ? { kind: "stall", afterBytes: 2_000 }
          : undefined;
    },
  });
  assert.equal(sink.state.services.size, COUNT);
  assert.equal(server.seen("list", "services").length, 1);
});

test("a list of many objects is put off when the history is lost, so that not all nodes ask for it at once", async (t) => {
  assert.deepEqual([0, 4_000, 10_000, 1_000_000].map(putOffMs), [0, 0, 18_000, 30_000]);
  const { waits, clock } = notingClock();
  const source = await start(t, { clock, random: () => 0.5, times: { putOffMs: (objects) => objects * 1_000 } });
  const { server } = source;
  await until("the watch", () => server.watches("services").length === 1);
  for (const watch of server.watches("services")) watch.pause();
  server.put("services", service(1, { type: "NodePort" }));
  server.store.compact();
  cutServices(server);
  await settled(source, "services");
  assert.ok(waits.includes((COUNT * 1_000) / 2), waits.join(" "));
});
