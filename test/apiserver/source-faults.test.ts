/** The API source with a server that fails, is slow or goes away: nothing is lost, and everything finally arrives. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Clock } from "../../src/async/clock.ts";
import { until } from "../../testkit/support/patience.ts";
import { service } from "./example-objects.ts";
import { fastClock, settled } from "./source-under-test.ts";
import { COUNT, cutServices, failing, notingClock, some, start } from "./source-with-objects.ts";

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

test("a watch that the server has forgotten is opened again when its time is over", async (t) => {
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
  // A proxy that passes nothing on before part of the body has arrived.
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

test("a watch that is cut is opened again at once, however often, as long as it works in between", async (t) => {
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

test("after an outage one watch that gets through wakes the others, and a history that is gone is no error", async (t) => {
  const clock = fastClock(20);
  // Turns use timers, so a longer sleep is resting, and continues only if it is woken.
  const sleep: Clock["sleep"] = (delayMs, signal) => clock.sleep(delayMs <= 1_000 ? delayMs : 1e9, signal);
  const source = await start(t, { clock: { ...clock, sleep }, times: { shortWatchMs: 0 } });
  const { server, sink, log, problems } = source;
  await until("the watches", () => server.watches().length === 4);
  sink.take("services");
  await server.shutDown();
  await until("all watches to have failed", () => new Set(problems.map(([plural]) => plural)).size === 4);
  assert.equal(log.errors().length, 1, "one line speaks for all");
  server.switches.fault = ({ plural }) => (plural === "services" ? { kind: "status", code: 503 } : undefined);
  server.put("services", service(70));
  server.delete("services", service(2));
  await server.restart();
  await until("the services to be refused", () => server.seen("watch", "services").length > 1);
  await until("the others", () => server.watches().length === 3);
  await until("the services to rest", () => log.lines.some(({ error }) => error.includes("503")));
  server.switches.fault = () => undefined;
  // Not every response wakes resting reflectors: only the first after a while.
  await until("the services to be woken", () => {
    for (const watch of server.watches("servicecidrs")) watch.end();
    return server.watches("services").length === 1;
  });
  await until("the deletion", () => !sink.state.services.has("default/svc-2"));
  assert.deepEqual(sink.take("services").toSorted(), ["add default/svc-70", "delete default/svc-2"]);
  assert.deepEqual(
    log.errors().filter((line) => /\b410\b|Expired|too old/.test(line)),
    [],
  );
  await until("health", () => problems.filter(([, problem]) => problem === undefined).length >= 4);
});

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

test("a server that says again and again when to come is asked ever more rarely, for it says the same to all nodes", async (t) => {
  const { waits, clock } = notingClock();
  await start(t, {
    waitsForSync: false,
    random: () => 0.5,
    clock,
    prepare: (s) => failing(s, "nodes", { kind: "status", code: 429, retryAfterSeconds: 10 }),
    onlyNode: true,
  });
  await until("some attempts", () => waits.length >= 6);
  assert.deepEqual(waits.slice(0, 6), [15_000, 20_000, 30_000, 50_000, 50_000, 50_000]);
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
  // A hundredth of that in real time, which still counts as "at once" on a busy machine.
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
