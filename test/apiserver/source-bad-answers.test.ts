/** The API source with a server that sends garbage: it loses no delivered object and invents none. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../testkit/support/patience.ts";
import { service } from "./example-objects.ts";
import { type Fault, WEB_PAGE } from "./faults.ts";
import { settled, TIMES_FOR_LARGE } from "./source-under-test.ts";
import { COUNT, cutServices, failing, some, start } from "./source-with-objects.ts";
import type { WatchStream } from "./watch-stream.ts";

const BROKEN_ANSWERS: readonly (readonly [string, Fault, RegExp])[] = [
  [
    "another object",
    { kind: "text", contentType: "application/json", text: '{"kind":"APIVersions","metadata":{}}' },
    /is not a list: is this an API server\?/,
  ],
  ["a web page", WEB_PAGE, /"text\/html" and not JSON: is this an API server\?/],
  [
    "a list that ends early",
    { kind: "truncate", afterBytes: 3_000 },
    /ends in the middle of the list|not a whole JSON object/,
  ],
  ["a list that is cut", { kind: "cut", afterBytes: 3_000 }, /the connection was cut/],
  ["status 500", { kind: "status", code: 500 }, /500 InternalError/],
  ["status 503 without a Status", { kind: "status", code: 503 }, /503 ServiceUnavailable/],
  ["status 429", { kind: "status", code: 429, retryAfterSeconds: 1 }, /429 TooManyRequests/],
];

for (const [[what, fault, expected], hasProtobuf] of BROKEN_ANSWERS.flatMap((answer) => [
  [answer, false] as const,
  [answer, true] as const,
])) {
  const format = hasProtobuf ? "protobuf" : "JSON";
  test(`${what} instead of a list in ${format} is said once and asked for again; nothing is deleted for it`, async (t) => {
    const source = await start(t, {
      prepare: (server) => {
        server.switches.hasWatchList = false;
        server.switches.hasProtobuf = hasProtobuf;
        some(server);
      },
    });
    const { server, sink, log } = source;
    sink.take("services");
    await until("the watch", () => server.watches("services").length === 1);
    const recover = failing(server, "services", fault, "list");
    server.store.restart();
    cutServices(server);
    const before = server.seen("list", "services").length;
    await until("three attempts", () => server.seen("list", "services").length >= before + 3);
    const complaints = log.errors().filter((line) => line.includes("list services"));
    assert.equal(complaints.length, 1, complaints.join("\n"));
    assert.match(complaints[0] ?? "", expected);
    assert.deepEqual(sink.take("services"), []);
    recover();
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), []);
    assert.equal(sink.state.services.size, COUNT);
  });
}

test("a first list that is nonsense is not taken for an empty cluster", async (t) => {
  const source = await start(t, {
    waitsForSync: false,
    prepare: (server) => {
      some(server);
      server.switches.hasWatchList = false;
      server.pages.mangle = () => "{}";
    },
  });
  const { server, sink, log } = source;
  await until("a few attempts", () => server.seen("list", "services").length >= 3);
  assert.deepEqual(sink.synced, []);
  assert.ok(log.errors().some((line) => line.includes("20 items of the list are not objects with a name")));
  server.pages.mangle = (json) => json;
  await until("everything", () => sink.synced.length === 4);
});

test("one nameless object in a list holds back deletions only, and only while it is there", async (t) => {
  const source = await start(t, {
    prepare: (server) => {
      some(server);
      server.switches.hasWatchList = false;
    },
  });
  const { server, sink } = source;
  await until("the watch", () => server.watches("services").length === 1);
  sink.take("services");
  server.pages.mangle = (json) => (json.includes('"svc-5"') ? json.replace('"svc-5"', '""') : json);
  for (const watch of server.watches("services")) watch.pause();
  server.put("services", service(60));
  server.delete("services", service(6));
  server.store.compact();
  cutServices(server);
  await until("the addition", () => sink.state.services.has("default/svc-60"));
  const lists = server.seen("list", "services").length;
  await until("another attempt", () => server.seen("list", "services").length > lists + 1);
  assert.deepEqual(sink.take("services"), ["add default/svc-60"]);
  server.pages.mangle = (json) => json;
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["delete default/svc-6"]);
});

test("an object that cannot be used keeps its last good version, in watches and lists", async (t) => {
  const source = await start(t);
  const { server, sink, log } = source;
  sink.take("services");
  server.put("services", service(4, { ports: [{ port: 0, protocol: "TCP" }] }), service(5, { type: "NodePort" }));
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["update default/svc-5"]);
  server.store.compact();
  cutServices(server);
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), []);
  assert.equal(log.errors().filter((line) => line.includes("Cannot use an object")).length, 1);
});

for (const hasProtobuf of [false, true]) {
  const format = hasProtobuf ? "protobuf" : "JSON";
  test(`an object of 40 MB in ${format} is read in a watch and in a list without stopping anything else`, async (t) => {
    const source = await start(t, {
      times: TIMES_FOR_LARGE,
      prepare: (server) => {
        server.switches.hasProtobuf = hasProtobuf;
        some(server);
      },
    });
    const { server, sink, log } = source;
    sink.take("services");
    const large = { externalName: "x".repeat(40 * 1_048_576), type: "NodePort" };
    server.put("services", service(4, large), service(5, { type: "NodePort" }));
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), ["update default/svc-4", "update default/svc-5"]);
    server.switches.hasWatchList = false;
    server.store.compact();
    cutServices(server);
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), []);
    server.delete("services", service(4));
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), ["delete default/svc-4"]);
    assert.deepEqual(log.errors(), []);
    assert.ok(
      server.requests.every(({ headers }) => headers.accept?.startsWith("application/vnd.kubernetes.protobuf")),
      "nothing was a reason to ask for JSON",
    );
  });
}

test("objects whose names cannot be used hide nothing, neither in a list nor in a watch", async (t) => {
  const source = await start(t, {
    prepare: (server) => {
      some(server);
      server.switches.hasWatchList = false;
      server.pages.mangle = (json) => (json.includes('"svc-5"') ? json.replace('"svc-5"', '"__proto__"') : json);
    },
  });
  const { server, sink, log } = source;
  assert.equal(sink.state.services.size, COUNT - 1);
  await until("the watch", () => server.watches("services").length === 1);
  const [watch] = server.watches("services");
  watch?.sendNow("ADDED", { metadata: { name: 'a"; drop', namespace: "d", resourceVersion: "9999" } });
  server.put("services", service(60));
  await until("what comes after it", () => sink.state.services.has("default/svc-60"));
  assert.equal(server.watches("services")[0], watch, "the same watch goes on");
  // One line for the list, and one for the watch; a slice belongs to the first.
  const said = log.errors().filter((line) => /metadata\.name must be a DNS subdomain.*left out/.test(line));
  assert.equal(said.length, 2, log.errors().join("\n"));
});

const frame = (...bytes: readonly number[]): Buffer => Buffer.from([0, 0, 0, bytes.length, ...bytes]);
const NAMELESS = (watch: WatchStream): void => watch.sendNow("MODIFIED", { metadata: {} });
const UNKNOWN_TYPE = (watch: WatchStream): void => watch.sendNow("NEWS", { metadata: {} });
const bytes =
  (content: string | Buffer) =>
  (watch: WatchStream): void =>
    watch.sendBytes(content);

for (const [what, hasProtobuf, send] of [
  ["broken JSON", false, bytes('{"type":"MODIFIED","object":{"metadata":{"na\n')],
  ["an object without a name", false, NAMELESS],
  ["an object without a name in protobuf", true, NAMELESS],
  ["an unknown type", false, UNKNOWN_TYPE],
  ["an unknown type in protobuf", true, UNKNOWN_TYPE],
  ["something else than an object", false, bytes("7\n")],
  ["JSON in the middle of protobuf", true, bytes('{"type":"MODIFIED"}\n')],
  ["an event of 2 GB", true, bytes(Buffer.from([0x80, 0, 0, 0, 1]))],
  ["an event without bytes", true, bytes(frame())],
  ["a group", true, bytes(frame(0x0b, 0x0c))],
  ["an event of another kind of bytes", true, bytes(frame(0x12, 0x05, 0x0a, 0x03, 0x6b, 0x38, 0x74))],
] as const) {
  test(`${what} in a watch is followed by a list, for an update may have been lost`, async (t) => {
    const source = await start(t, {
      prepare: (server) => {
        server.switches.hasProtobuf = hasProtobuf;
        some(server);
      },
    });
    const { server, sink, log } = source;
    await settled(source, "services");
    sink.take("services");
    for (const watch of server.watches("services")) {
      watch.pause();
      server.put("services", service(1, { type: "NodePort" }));
      send(watch);
    }
    await until("the update", () => sink.events.services.length > 0);
    assert.deepEqual(sink.take("services"), ["update default/svc-1"]);
    assert.equal(log.errors().length, 1);
    const asked = server.seen("watch", "services").at(-1)?.headers.accept;
    assert.equal(
      asked?.startsWith("application/json"),
      hasProtobuf,
      "protobuf that was not understood is not asked for again",
    );
    const said = log.lines.filter(({ message }) => message.startsWith("Cannot read a protobuf response"));
    assert.equal(said.length, hasProtobuf ? 1 : 0);
  });
}
