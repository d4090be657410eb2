/** Objects too large to be read whose names come late, or not at all: skipped, and the watch goes on. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isJsonObject } from "../../src/model/projection/fields.ts";
import { until } from "../../testkit/support/patience.ts";
import { node, service, slice } from "./example-objects.ts";
import { settled, TIMES_FOR_LARGE } from "./source-under-test.ts";
import { cutServices, some, start } from "./source-with-objects.ts";

const LARGE = "x".repeat(5 * 1_048_576);

/** As a program writes it that reads JSON into a map and writes it again. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .toSorted()
      .map((key) => [key, sorted(value[key])]),
  );
}

const LARGE_OBJECTS = [
  ["services", "services", { ...service(4), annotations: LARGE }, service(4, { type: "NodePort" })],
  ["endpointslices", "endpointSlices", slice(4, 30_000), slice(4, 2)],
  ["nodes", "nodes", { ...node("node-a"), images: LARGE }, node("node-a", "192.0.2.11")],
] as const;

for (const [plural, kind, large, small] of LARGE_OBJECTS) {
  for (const hasWatchList of [true, false]) {
    const way = hasWatchList ? "streamed" : "paged";
    test(`${plural}: an object of 5 MB with its metadata last is left out by name, lists ${way}`, async (t) => {
      const source = await start(t, {
        times: TIMES_FOR_LARGE,
        prepare: (server) => {
          Object.assign(server.switches, { hasWatchList, hasProtobuf: false });
          server.store.jsonOf = (object) => JSON.stringify(sorted(object));
          some(server);
        },
      });
      const { server, sink, log } = source;
      sink.take(kind);
      const key = `${"namespace" in small.metadata ? "default/" : ""}${small.metadata.name}`;
      const lists = server.requests.length;
      server.put(plural, large);
      await until("the refusal", () => log.errors().length > 0);
      assert.match(log.errors().join("\n"), /has \d{7} bytes, more than 4194304: its last good version stays/);
      server.store.compact();
      for (const watch of server.watches(plural)) watch.cut();
      await until("another list", () => server.requests.length > lists + 1);
      server.put(plural, small);
      await until("the update", () => sink.events[kind].length > 0);
      assert.deepEqual(sink.take(kind), [`update ${key}`]);
      assert.equal(log.errors().length, 1, log.errors().join("\n"));
      server.put(plural, large);
      server.store.delete(plural, key);
      await until("the deletion", () => sink.events[kind].length > 0);
      assert.deepEqual(sink.take(kind), [`delete ${key}`]);
    });
  }
}

for (const hasProtobuf of [false, true]) {
  for (const hasWatchList of [true, false]) {
    const way = `${hasProtobuf ? "protobuf" : "JSON"}, lists ${hasWatchList ? "streamed" : "paged"}`;
    test(`an object of 5 MB without a known name is skipped, and nothing is deleted for it: ${way}`, async (t) => {
      const source = await start(t, {
        times: TIMES_FOR_LARGE,
        prepare: (server) => {
          Object.assign(server.switches, { hasWatchList, hasProtobuf });
          const withoutName = (key: string, value: unknown) => (key === "name" ? undefined : value);
          const isLarge = (text: string) => text.length > LARGE.length;
          server.store.jsonOf = (object) => {
            const text = JSON.stringify(object);
            return isLarge(text) ? JSON.stringify(object, withoutName) : text;
          };
          some(server);
        },
      });
      const { server, sink, log } = source;
      await until("the watch", () => server.watches("services").length === 1);
      sink.take("services");
      const [watch] = server.watches("services");
      // In protobuf only the beginning is looked at, and this has the namespace after it.
      const { metadata, spec } = service(4, { externalName: LARGE });
      const nameless = { metadata: { ...metadata, generateName: "x".repeat(20_000) }, spec };
      server.put("services", nameless);
      await settled(source, "services");
      assert.equal(server.watches("services")[0], watch, "the same watch goes on");
      const said = /has \d{7} bytes, more than 4194304, and its name was not found: it is skipped/;
      assert.equal(log.errors().filter((line) => said.test(line)).length, 1, log.errors().join("\n"));

      server.watches("services")[0]?.pause();
      server.store.delete("services", "default/svc-6");
      server.store.compact();
      const requests = server.requests.length;
      cutServices(server);
      await settled(source, "services");
      const asked = server.requests.length;
      assert.ok(asked > requests && asked <= requests + 4, `${asked - requests} requests`);
      assert.deepEqual(sink.take("services"), []);
      assert.deepEqual(
        log.errors().filter((line) => !said.test(line)),
        [],
      );

      server.put("services", service(4, { type: "NodePort" }));
      await settled(source, "services");
      assert.deepEqual(sink.take("services"), ["update default/svc-4"]);
      server.store.compact();
      cutServices(server);
      await settled(source, "services");
      assert.deepEqual(sink.take("services"), ["delete default/svc-6"]);
    });
  }
}
