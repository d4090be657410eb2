/**
 * The API source with a well-behaved server: its requests, its deliveries and its watches. The tests count requests, so
 * they do not speed up the clock: a timeout on a busy machine would add requests.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { WATCHED_PLURALS } from "../../src/agent/cluster/apiserver/watch/resources.ts";
import { until } from "../../testkit/support/patience.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { RESOURCE_TYPES } from "./resource-types.ts";
import { fastClock, type SourceUnderTest, type StartOptions, settled, startSource } from "./source-under-test.ts";
import { nodeProxierRole, type TestApiServer } from "./test-api-server.ts";

const some = (server: TestApiServer, count = 3): void => {
  server.put("nodes", node("node-a"), node("node-b"));
  server.put("servicecidrs", serviceCidr());
  for (let index = 0; index < count; index++) {
    server.put("services", service(index));
    server.put("endpointslices", slice(index));
  }
};

const start = async (t: TestContext, options: StartOptions = {}): Promise<SourceUnderTest> =>
  await startSource(t, { prepare: some, clock: fastClock(4), ...options });

test("everything is delivered once, then said to be complete, then every change comes", async (t) => {
  const source = await start(t);
  const { server, sink } = source;
  assert.deepEqual(sink.keys("nodes"), ["node-a"], "only this node");
  assert.deepEqual(sink.take("services"), ["add default/svc-0", "add default/svc-1", "add default/svc-2"]);
  assert.deepEqual(
    sink.keys("endpointSlices"),
    [0, 1, 2].map((index) => `default/svc-${index}-abcde`),
  );
  assert.deepEqual(sink.keys("serviceCIDRs"), ["kubernetes"]);
  server.put("services", service(1, { type: "NodePort" }), service(9));
  server.delete("services", service(0));
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["update default/svc-1", "add default/svc-9", "delete default/svc-0"]);
});

for (const [how, options, hasWatchList] of [
  ["a streamed list in protobuf", {}, true],
  ["pages in protobuf", {}, false],
  ["JSON", { takesProtobuf: false }, true],
] as const) {
  test(`the names of pods are kept where they are asked for, and nowhere else (${how})`, async (t) => {
    const prepare = (server: TestApiServer): void => {
      some(server);
      server.switches.hasWatchList = hasWatchList;
    };
    for (const keepsPods of [true, false]) {
      const source = await start(t, { ...options, keepsPods, prepare });
      source.server.put("endpointslices", slice(8));
      await settled(source, "endpointslices");
      const pods = [0, 8].map((index) => {
        const record = source.sink.state.endpointSlices.get(`default/svc-${index}-abcde`);
        assert.ok(record !== undefined && "endpoints" in record);
        return record.endpoints[0]?.pod;
      });
      assert.deepEqual(pods, keepsPods ? ["default/pod-0-0", "default/pod-8-0"] : [undefined, undefined]);
    }
  });
}

test("the initial list is streamed, with upstream's paths and selectors, and followed in the same request", async (t) => {
  const source = await start(t);
  await settled(source, "services");
  const { server, log } = source;
  assert.deepEqual(server.requests.map(({ verb, plural }) => `${verb} ${plural}`).sort(), [
    "watch endpointslices",
    "watch nodes",
    "watch servicecidrs",
    "watch services",
  ]);
  const [request] = server.seen("watch", "services");
  const { timeoutSeconds, ...query } = Object.fromEntries(request?.query ?? []);
  assert.deepEqual(query, {
    labelSelector: "!service.kubernetes.io/service-proxy-name",
    fieldSelector: "spec.clusterIP!=None",
    sendInitialEvents: "true",
    resourceVersionMatch: "NotOlderThan",
    watch: "true",
    allowWatchBookmarks: "true",
  });
  assert.ok(Number(timeoutSeconds) >= 300 && Number(timeoutSeconds) <= 600, timeoutSeconds);
  assert.equal(server.seen("watch", "nodes")[0]?.query.get("fieldSelector"), "metadata.name=node-a");
  const slices = server.seen("watch", "endpointslices")[0]?.query;
  assert.equal(slices?.get("labelSelector"), "!service.kubernetes.io/headless");
  const messages = log.lines.filter(({ level }) => level === "info").map(({ message }) => message);
  assert.equal(messages[0], "Starting node config controller");
  for (const controller of ["service config", "endpoint slice config", "serviceCIDR config"]) {
    assert.ok(messages.includes(`Starting ${controller} controller`));
    assert.ok(log.lines.some((line) => line.message === "Caches are synced" && line.facts.controller === controller));
  }
  assert.deepEqual(log.complaints(), []);
});

for (const [what, options, hasProtobuf, accept, answered] of [
  [
    "a server that speaks protobuf",
    {},
    true,
    /^application\/vnd\.kubernetes\.protobuf;.*, application\/json$/,
    "application/vnd.kubernetes.protobuf",
  ],
  [
    "a server that speaks JSON only",
    {},
    false,
    /^application\/vnd\.kubernetes\.protobuf;.*, application\/json$/,
    "application/json",
  ],
  [
    "a client that is to speak JSON",
    { takesProtobuf: false },
    true,
    /^application\/json;.*, application\/json$/,
    "application/json",
  ],
] as const) {
  test(`${what} is followed, and its errors are understood`, async (t) => {
    const source = await start(t, {
      ...options,
      prepare: (server) => {
        server.switches.hasProtobuf = hasProtobuf;
        server.switches.fault = (request) =>
          request.query.has("sendInitialEvents") ? undefined : { kind: "status", code: 403 };
        some(server);
      },
    });
    const { server, sink, log } = source;
    assert.deepEqual(sink.take("services"), ["add default/svc-0", "add default/svc-1", "add default/svc-2"]);
    await settled(source, "endpointslices");
    for (const { headers } of server.requests) assert.match(headers.accept ?? "", accept);
    const [watch] = server.watches("services");
    assert.equal(watch?.format.mediaType, answered);
    watch?.end();
    await until("the refusal", () => log.errors().length > 0);
    assert.match(log.errors()[0] ?? "", /403 Forbidden: status 403 as asked for by the test/);
  });
}

test("a server without streaming lists is read in pages, and asked to stream only once", async (t) => {
  const source = await start(t, {
    prepare: (server) => {
      server.switches.hasWatchList = false;
      some(server, 1_100);
    },
  });
  const { server, sink, log } = source;
  assert.equal(sink.state.services.size, 1_100);
  const lists = server
    .seen("list", "services")
    .map(({ query }) => `${query.get("limit")} ${query.get("resourceVersion")}`);
  assert.deepEqual(lists, ["500 0", "500 null", "500 null"]);
  server.store.restart();
  server.cutConnections();
  await settled(source, "services");
  const versions = server.seen("list", "services").map(({ query }) => query.get("resourceVersion"));
  assert.equal(versions.length, 4, "the list after the outage needs no pages");
  assert.notEqual(versions[3], "0");
  assert.equal(server.seen("watch", "services").filter(({ query }) => query.has("sendInitialEvents")).length, 1);
  assert.deepEqual(log.errors(), []);
});

test("objects that stop matching the selectors are deleted, those that start are added", async (t) => {
  const source = await start(t);
  const { server, sink } = source;
  sink.take("services");
  const hidden = service(1);
  const labels = { "service.kubernetes.io/service-proxy-name": "" };
  server.put("services", { ...hidden, metadata: { ...hidden.metadata, labels } });
  server.put("services", service(2, { clusterIP: "None", clusterIPs: ["None"] }));
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["delete default/svc-1", "delete default/svc-2"]);
  server.put("services", hidden);
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), ["add default/svc-1"]);
});

test("a server that ignores the selectors changes nothing", async (t) => {
  const { sink } = await start(t, {
    prepare: (server) => {
      some(server);
      server.switches.hasWatchList = false;
      server.put("services", service(7, { clusterIP: "None", clusterIPs: ["None"] }));
      server.pages.ignoresSelectors = true;
    },
  });
  assert.deepEqual(sink.keys("services"), ["default/svc-0", "default/svc-1", "default/svc-2"]);
});

test("a watch that the server ends in time goes on from its last version, without a list", async (t) => {
  const source = await start(t);
  const { server, sink, log } = source;
  await settled(source, "services");
  server.sendBookmarks();
  const version = String(server.store.version);
  sink.take("services");
  for (const watch of server.watches("services")) watch.end();
  await until("the next watch", () => server.watches("services").length === 1);
  await settled(source, "services");
  assert.deepEqual(sink.take("services"), []);
  assert.equal(server.seen("list", "services").length, 0);
  assert.equal(server.seen("watch", "services").at(-1)?.query.get("resourceVersion"), version);
  assert.deepEqual(log.complaints(), []);
});

test("a bookmark moves the place to resume from, so that what this node does not see is not missed either", async (t) => {
  const source = await start(t);
  const { server, sink } = source;
  await until("all watches", () => server.watches().length === 4);
  server.put("nodes", node("node-b"));
  server.store.compact();
  server.sendBookmarks();
  await settled(source, "services");
  for (const watch of server.watches("nodes")) watch.end();
  await until("the next watch", () => server.watches("nodes").length === 1);
  assert.equal(server.seen("watch", "nodes").filter(({ query }) => query.has("sendInitialEvents")).length, 1);
  assert.deepEqual(sink.events.nodes, ["add node-a"]);
});

test("a resource that never changes gets no bookmark, and is resumed from its list", async (t) => {
  const source = await start(t);
  const { server, sink, log } = source;
  await until("all watches", () => server.watches().length === 4);
  server.put("services", service(8));
  server.store.compact();
  server.sendBookmarks();
  await settled(source, "services");
  for (const watch of server.watches("servicecidrs")) watch.end();
  await until("the next watch", () => server.watches("servicecidrs").length === 1);
  assert.equal(server.seen("watch", "servicecidrs").filter(({ query }) => query.has("sendInitialEvents")).length, 1);
  assert.deepEqual(sink.events.serviceCIDRs, ["add kubernetes"]);
  assert.deepEqual(log.complaints(), []);
});

test("an idle node sends about 32 requests an hour, as upstream does, and says nothing", async (t) => {
  const source = await start(t, {
    clock: fastClock(500),
    prepare: (server) => {
      some(server);
      server.switches.secondMs = 2;
    },
  });
  const { server, log } = source;
  await until("all watches", () => server.watches().length === 4);
  const clock = fastClock(500);
  const [startMs, requests, lines] = [clock.monotonicMs(), server.requests.length, log.lines.length];
  await until("an hour", () => clock.monotonicMs() - startMs >= 3_600_000, { patienceMs: 30_000 });
  // Four watches, each of which ends after 5 to 10 minutes, as upstream.
  const sent = server.requests.slice(requests);
  assert.ok(sent.length >= 16 && sent.length <= 48, `${sent.length} requests`);
  assert.deepEqual(
    sent.filter(({ verb, query }) => verb !== "watch" || query.has("sendInitialEvents")),
    [],
    "each goes on from where it was",
  );
  assert.deepEqual(log.lines.slice(lines), []);
  for (const { plural } of server.watches()) {
    const count = sent.filter((request) => request.plural === plural).length;
    assert.ok(count <= 12, `${count} watches of ${plural}`);
  }
});

test("everything is delivered again as updates every resync period, without requests", async (t) => {
  const source = await start(t, { clock: fastClock(10), resyncPeriodMs: 2_000 });
  const { server, sink } = source;
  const requests = server.requests.length;
  sink.take("services");
  await until("two resyncs", () => sink.events.services.length >= 6);
  assert.deepEqual(
    sink.take("services").slice(0, 3),
    [0, 1, 2].map((index) => `update default/svc-${index}`),
  );
  assert.equal(server.requests.length, requests);
});

test("the permissions of system:node-proxier are enough", async (t) => {
  const { log, sink } = await start(t, {
    config: { authentication: { kind: "token", token: "t" } },
    prepare: (server) => {
      some(server);
      server.switches.tokens = new Map([["t", "system:kube-proxy"]]);
      server.switches.isAllowed = nodeProxierRole(RESOURCE_TYPES);
    },
  });
  assert.equal(sink.synced.length, 4);
  assert.deepEqual(log.complaints(), []);
});

test("for a start that only needs the node nothing else is asked for", async (t) => {
  const { server, sink } = await start(t, { onlyNode: true, waitsForSync: false });
  await until("the watch of the node", () => server.watches().length === 1 && sink.synced.length > 0);
  assert.deepEqual(sink.synced, ["nodes"]);
  assert.deepEqual(new Set(server.requests.map(({ plural }) => plural)), new Set(["nodes"]));
});

test("stopping closes every connection and ends without an error", async (t) => {
  const source = await start(t);
  await until("all watches", () => source.server.watches().length === 4);
  await source.stop();
  await until("the connections to close", () => source.server.connections === 0);
  assert.deepEqual(source.log.complaints(), []);
});

test("a receiver that throws ends the source: that is a bug, and not the server's fault", async (t) => {
  const source = await start(t);
  source.sink.onEvent = () => {
    throw new Error("bug");
  };
  source.server.put("services", service(5));
  await assert.rejects(source.ended, /bug/);
  await until("the connections to close", () => source.server.connections === 0);
});

test("a file of the configuration that is not there is an error at the start", async (t) => {
  const authentication = { kind: "tokenFile", path: "/nowhere/token" } as const;
  const { ended } = await start(t, { config: { authentication }, waitsForSync: false });
  await assert.rejects(ended, /cannot use the token file \/nowhere\/token/);
});

test("without streaming lists (gate WatchListClient) the server is not asked for one", async (t) => {
  const { server, sink } = await start(t, { streamsLists: false });
  assert.equal(sink.synced.length, 4);
  assert.equal(server.seen("list", "services").length, 1);
  assert.ok(server.requests.every(({ query }) => !query.has("sendInitialEvents")));
});

test("everything that the server says of a resource is heard, and its silence is not", async (t) => {
  const heard: string[] = [];
  const source = await start(t, { onHeard: (resource) => heard.push(resource) });
  assert.deepEqual([...new Set(heard)].sort(), WATCHED_PLURALS.toSorted(), "the lists");
  await settled(source, "services");
  heard.length = 0;
  source.server.put("services", service(1, { type: "NodePort" }));
  await until("the change", () => heard.length > 0);
  assert.deepEqual([...new Set(heard)], ["services"]);
});
