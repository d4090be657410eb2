/** The API source at a server that misbehaves: nothing delivered is lost, nothing is made up, everything comes in the end. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { Clock } from "../../src/async/clock.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { type Fault, WEB_PAGE } from "./faults.ts";
import {
  fastClock,
  type SourceUnderTest,
  type StartOptions,
  settled,
  startSource,
  until,
} from "./source-under-test.ts";
import type { TestApiServer } from "./test-api-server.ts";

const COUNT = 20;

const some = (server: TestApiServer): void => {
  server.put("nodes", node("node-a"));
  server.put("servicecidrs", serviceCidr());
  for (let index = 0; index < COUNT; index++) {
    server.put("services", service(index));
    server.put("endpointslices", slice(index));
  }
};

const start = async (t: TestContext, options: StartOptions = {}): Promise<SourceUnderTest> =>
  await startSource(t, { prepare: some, ...options });

/** Makes every request of a kind fail until it is switched off. */
function failing(server: TestApiServer, plural: string, fault: Fault, verb?: string): () => void {
  server.switches.fault = (request) =>
    request.plural === plural && (verb === undefined || request.verb === verb) ? fault : undefined;
  return () => {
    server.switches.fault = () => undefined;
  };
}

/** Cuts the services' watch, so that it is asked for again. */
const cutServices = (server: TestApiServer): void => {
  for (const watch of server.watches("services")) watch.cut();
};

test("changes during an outage arrive as they are, and nothing else does", async (t) => {
  const source = await start(t);
  const { server, sink, log } = source;
  sink.take("services");
  const recover = failing(server, "services", { kind: "reset" });
  cutServices(server);
  server.put("services", service(1, { type: "NodePort" }), service(50));
  server.delete("services", service(2));
  await until("a complaint", () => log.errors().length > 0);
  assert.deepEqual(sink.take("services"), []);
  recover();
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["update default/svc-1", "add default/svc-50", "delete default/svc-2"]);
  assert.match(log.errors()[0] ?? "", /Failed to watch, retrying.*watch services: 127\.0\.0\.1:\d+: .*hang up/);
  assert.ok(log.lines.some(({ message, facts }) => message === "Watching again" && facts.resource === "services"));
});

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
    // To the client it looks the same when its own version is ahead: the server has never heard of it.
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

const BROKEN_ANSWERS: readonly (readonly [string, Fault, RegExp])[] = [
  [
    "another object",
    { kind: "text", contentType: "application/json", text: '{"kind":"APIVersions","metadata":{}}' },
    /is no list: is this an API server\?/,
  ],
  ["a web page", WEB_PAGE, /"text\/html" and not JSON: is this an API server\?/],
  ["a list that ends early", { kind: "truncate", afterBytes: 3_000 }, /ends in the middle of the JSON text/],
  ["a list that is cut", { kind: "cut", afterBytes: 3_000 }, /the connection was cut/],
  ["status 500", { kind: "status", code: 500 }, /500 InternalError/],
  ["status 503 without a Status", { kind: "status", code: 503 }, /503 ServiceUnavailable/],
  ["status 429", { kind: "status", code: 429, retryAfterSeconds: 1 }, /429 TooManyRequests/],
];

for (const [what, fault, expected] of BROKEN_ANSWERS) {
  test(`${what} instead of a list is said once and asked for again; nothing is deleted for it`, async (t) => {
    const source = await start(t, {
      prepare: (server) => {
        server.switches.hasWatchList = false;
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
  assert.ok(log.errors().some((line) => line.includes("20 items of the list are no objects with a name")));
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

test("an object of 40 MB is left out of a watch and of a list without stopping anything else", async (t) => {
  const source = await start(t);
  const { server, sink, log } = source;
  sink.take("services");
  server.put("services", service(4, { externalName: "x".repeat(40 * 1_048_576) }), service(5, { type: "NodePort" }));
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["update default/svc-5"]);
  server.switches.hasWatchList = false;
  server.store.compact();
  cutServices(server);
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), []);
  const said = log
    .errors()
    .filter((line) => /has 4\d{7} bytes, more than 16777216: its last good version stays/.test(line));
  assert.equal(said.length, 1, log.errors().join("\n"));
  server.delete("services", service(4));
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["delete default/svc-4"]);
});

for (const [what, line] of [
  ["broken JSON", '{"type":"MODIFIED","object":{"metadata":{"na'],
  ["an object without a name", '{"type":"MODIFIED","object":{"kind":"Service","metadata":{}}}'],
  ["an unknown type", '{"type":"NEWS","object":{}}'],
  ["something else than an object", "7"],
] as const) {
  test(`${what} in a watch is followed by a list, for an update may have been lost`, async (t) => {
    const source = await start(t);
    const { server, sink, log } = source;
    await settled(source, "services");
    sink.take("services");
    for (const watch of server.watches("services")) {
      watch.pause();
      server.put("services", service(1, { type: "NodePort" }));
      watch.sendNow(line);
    }
    await until("the update", () => sink.events.services.length > 0);
    assert.deepEqual(sink.take("services"), ["update default/svc-1"]);
    assert.equal(log.errors().length, 1);
  });
}

test("a watch that the server has forgotten is opened anew when its time is over", async (t) => {
  const { waits, clock } = notingClock();
  const source = await start(t, { times: { watchTimeoutMs: 10_000, watchGraceMs: 2_000 }, clock });
  const { server, sink, log } = source;
  await settled(source, "services");
  sink.take("services");
  for (const watch of server.watches()) watch.stall();
  server.put("services", service(1, { type: "NodePort" }));
  await until("the update", () => sink.events.services.length > 0);
  assert.deepEqual(sink.take("services"), ["update default/svc-1"]);
  assert.deepEqual(log.errors(), []);
  assert.deepEqual(waits, [], "nothing says that the server needs a rest");
});

test("a watch that something in between holds back is replaced by a list with what follows it, and is no error", async (t) => {
  const source = await start(t, { times: { watchAnswerMs: 200 } });
  const { server, sink, log } = source;
  await settled(source, "services");
  sink.take("services");
  // What waits for a piece of the body before it passes anything on.
  server.switches.fault = ({ verb, query }) =>
    verb === "watch" && !query.has("sendInitialEvents") ? { kind: "silent" } : undefined;
  for (const watch of server.watches("services")) watch.end();
  server.put("services", service(1, { type: "NodePort" }));
  await until("the update", () => sink.events.services.length > 0);
  server.put("services", service(1));
  await until("the next", () => sink.events.services.length > 1);
  assert.deepEqual(sink.take("services"), ["update default/svc-1", "update default/svc-1"]);
  assert.equal(server.watches("services").length, 1, "and stays");
  assert.deepEqual(log.complaints(), []);
});

test("a watch that is cut is opened anew at once, however often, as long as it works in between", async (t) => {
  const { waits, clock } = notingClock();
  const source = await start(t, { clock });
  const { server, sink, log } = source;
  for (let cut = 0; cut < 5; cut++) {
    await settled(source, "services");
    cutServices(server);
  }
  server.put("services", service(1, { type: "NodePort" }));
  await settled(source, "services");
  assert.equal(sink.take("services").at(-1), "update default/svc-1");
  assert.deepEqual(log.errors(), []);
  assert.deepEqual(waits, []);
});

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

test("missing permissions are named by resource, the other resources work, and health is told", async (t) => {
  let isAllowed = false;
  const source = await start(t, {
    waitsForSync: false,
    prepare: (server) => {
      some(server);
      server.switches.isAllowed = (_user, _verb, plural) => isAllowed || plural !== "endpointslices";
    },
  });
  const { sink, log, problems } = source;
  await until("the others", () => sink.synced.length === 3);
  await until("the problem", () => problems.length > 0);
  const problem =
    'watch endpointslices: 403 Forbidden: endpointslices is forbidden: User "system:kube-proxy" cannot watch resource ' +
    '"endpointslices" at the cluster scope: bind the ClusterRole system:node-proxier to this user';
  assert.deepEqual(problems, [["endpointslices", problem]]);
  assert.deepEqual(log.errors(), [`Failed to watch, retrying; everything stays as it is: ${problem}`]);
  isAllowed = true;
  await until("the slices", () => sink.synced.length === 4);
  assert.deepEqual(problems.at(-1), ["endpointslices", undefined]);
});

test("a token that is refused is read again and the watch goes on", async (t) => {
  const source = await start(t, {
    config: { authentication: { kind: "token", token: "one" } },
    prepare: (server) => {
      some(server);
      server.switches.tokens = new Map([["one", "system:kube-proxy"]]);
    },
  });
  const { server, sink, log } = source;
  sink.take("services");
  server.switches.tokens = new Map();
  cutServices(server);
  server.put("services", service(70));
  await until("the complaint", () => log.errors().length > 0);
  assert.match(log.errors()[0] ?? "", /watch services: 401 Unauthorized/);
  server.switches.tokens = new Map([["one", "system:kube-proxy"]]);
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["add default/svc-70"]);
});

test("a token file that is mended ends the wait for it at once, however long that is", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-token-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "token");
  writeFileSync(path, "one");
  const clock = fastClock(100);
  // What is not a look at the file lasts until something ends it.
  const sleep: Clock["sleep"] = (delayMs, signal) => clock.sleep(delayMs === 500 ? delayMs : 1e9, signal);
  const source = await start(t, {
    clock: { ...clock, sleep },
    config: { authentication: { kind: "tokenFile", path } },
    prepare: (server) => {
      some(server);
      server.switches.tokens = new Map([["one", "system:kube-proxy"]]);
    },
  });
  const { server, sink, log } = source;
  sink.take("services");
  server.switches.tokens = new Map([["two", "system:kube-proxy"]]);
  server.cutConnections();
  await until("the complaints", () => log.errors().length === 4);
  const requests = server.requests.length;
  writeFileSync(path, "neither");
  await until("another attempt", () => server.requests.length > requests);
  writeFileSync(path, "two");
  server.put("services", service(70));
  await until("the service", () => sink.state.services.has("default/svc-70"));
});

test("after an outage one watch that gets through wakes the others, and a history that is gone is no error", async (t) => {
  const clock = fastClock(20);
  // Turns have timers, so whatever sleeps now is woken or stays where it is.
  const sleep: Clock["sleep"] = (delayMs, signal) => clock.sleep(delayMs <= 1_000 ? delayMs : 1e9, signal);
  const source = await start(t, { clock: { ...clock, sleep }, times: { shortWatchMs: 0 } });
  const { server, sink, log, problems } = source;
  await until("the watches", () => server.watches().length === 4);
  sink.take("services");
  await server.shutDown();
  await until("the complaints", () => log.errors().length === 4);
  server.switches.fault = ({ plural }) => (plural === "services" ? { kind: "status", code: 503 } : undefined);
  server.put("services", service(70));
  server.delete("services", service(2));
  await server.restart();
  await until("the services to be refused", () => server.seen("watch", "services").length > 1);
  await until("the others", () => server.watches().length === 3);
  await until("the services to rest", () => log.lines.some(({ error }) => error.includes("503")));
  server.switches.fault = () => undefined;
  // Not every answer wakes: the first one after a while does.
  await until("the services to be woken", () => {
    for (const watch of server.watches("servicecidrs")) watch.end();
    return server.watches("services").length === 1;
  });
  await until("the deletion", () => !sink.state.services.has("default/svc-2"));
  assert.deepEqual(sink.take("services").toSorted(), ["add default/svc-70", "delete default/svc-2"]);
  assert.deepEqual(
    log.errors().filter((line) => /410|Expired|too old/.test(line)),
    [],
  );
  await until("health", () => problems.filter(([, problem]) => problem === undefined).length >= 4);
});

/** A clock that notes what is waited for. */
function notingClock() {
  const clock = fastClock(100);
  const waits: number[] = [];
  const sleep: Clock["sleep"] = (delayMs, signal) => {
    waits.push(delayMs);
    return clock.sleep(delayMs, signal);
  };
  return { waits, clock: { ...clock, sleep } };
}

test("failures are answered by longer and longer waits, and by those that the server asks for", async (t) => {
  const { waits, clock } = notingClock();
  const { server } = await start(t, {
    waitsForSync: false,
    random: () => 0,
    clock,
    prepare: (s) => failing(s, "nodes", { kind: "status", code: 500 }),
    onlyNode: true,
  });
  await until("three attempts", () => waits.length >= 3);
  failing(server, "nodes", { kind: "status", code: 429, retryAfterSeconds: 40 });
  await until("more attempts", () => waits.includes(40_000));
  assert.deepEqual(waits.slice(0, 3), [800, 1600, 3200]);
});

test("a slow server is waited for, and its objects are used as they come", async (t) => {
  const source = await start(t, {
    waitsForSync: false,
    prepare: (server) => {
      some(server);
      server.switches.hasWatchList = false;
      server.switches.fault = ({ plural, verb }) =>
        plural === "services" && verb === "list" ? { kind: "slow", pieceBytes: 400, delayMs: 4 } : undefined;
    },
  });
  const { sink } = source;
  await until("some", () => sink.state.services.size > 0);
  assert.ok(!sink.synced.includes("services"));
  await until("all", () => sink.synced.includes("services"));
  assert.equal(sink.state.services.size, COUNT);
});

test("a server that ends every watch at once is not asked on and on", async (t) => {
  // A hundredth of that: "at once" also on a machine that is busy.
  const source = await start(t, { times: { shortWatchMs: 30_000 } });
  const { server } = source;
  await until("the watches", () => server.watches().length === 4);
  server.switches.watchTimeoutMs = 0;
  const before = server.seen("watch", "services").length;
  cutServices(server);
  await until("some attempts", () => server.seen("watch", "services").length > before + 5);
  // 0.8 + 1.6 + 3.2 + 6.4 + 12.8 s at least, a hundred times faster.
  assert.ok(source.log.errors().some((line) => line.includes("the watch ended at once and had no events")));
});

test("a clock that is set, forwards or back, changes nothing", async (t) => {
  let offsetMs = 0;
  const clock = fastClock(100);
  const source = await start(t, { clock: { ...clock, now: () => clock.now() + offsetMs } });
  const { server, sink, log } = source;
  await until("the watches", () => server.watches().length === 4);
  const requests = server.requests.length;
  sink.take("services");
  for (const years of [10, -10, 0]) {
    offsetMs = years * 365 * 86_400_000;
    server.put("services", service(1, { healthCheckNodePort: 30_010 + years }));
    await settled(source, "services");
    assert.deepEqual(sink.take("services"), ["update default/svc-1"]);
  }
  assert.equal(server.requests.length, requests, "nothing was asked again");
  assert.deepEqual(log.complaints(), []);
});
