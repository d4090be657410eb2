import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { ApiError } from "../connection/api-error.ts";
import type { ApiRequest, ApiResponse } from "../connection/transport.ts";
import { recordingLog } from "../testing/recording-log.ts";
import type { EventFacts, EventSubject } from "./event-object.ts";
import { EventRecorder } from "./events.ts";

const MINUTE_MS = 60_000;
const STARTING: EventFacts = {
  regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
  type: "Normal",
  reason: "Starting",
  action: "StartKubeProxy",
  note: "",
};

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly contentType: string;
  readonly object: Readonly<Record<string, unknown>>;
}

/** A recorder whose requests `answer` handles; it may throw. */
function setUp(
  answer: (request: Sent, count: number) => void = () => {},
  uidOf: (subject: EventSubject) => string | undefined = () => undefined,
) {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 4, 5));
  const log = recordingLog();
  const sent: Sent[] = [];
  const send = (request: ApiRequest): Promise<ApiResponse> => {
    const { method, path, body } = request;
    const current = { method, path, contentType: body?.contentType ?? "", object: JSON.parse(body?.text ?? "{}") };
    sent.push(current);
    answer(current, sent.length);
    return Promise.resolve({ contentType: "application/json", body: (async function* () {})() });
  };
  const recorder = new EventRecorder({
    transport: { send },
    hostname: "host.example",
    uidOf,
    clock,
    log,
    random: () => 0,
  });
  const stop = new AbortController();
  const start = () => recorder.run(stop.signal);
  return { clock, log, sent, recorder, start, stop };
}

test("an event about an object with a long name has a name that the API server takes", async () => {
  const { clock, sent, recorder, start, stop } = setUp();
  const name = `${"a".repeat(60)}.`.repeat(4).slice(0, -1);
  recorder.record({ ...STARTING, regarding: { ...STARTING.regarding, name } });
  const running = start();
  await clock.settle();
  const { metadata, regarding } = Object(sent[0]?.object);
  assert.equal(regarding.name, name);
  assert.match(metadata.name, /^[0-9a-f-]{36}$/);
  stop.abort();
  await running;
});

test("an event becomes the object that upstream writes", async () => {
  const { clock, sent, recorder, start, stop } = setUp();
  recorder.record(STARTING);
  const running = start();
  await clock.settle();
  assert.equal(sent.length, 1);
  const [{ method, path, contentType, object } = { method: "", path: "", contentType: "", object: {} }] = sent;
  assert.deepEqual(
    [method, path, contentType],
    ["POST", "/apis/events.k8s.io/v1/namespaces/default/events", "application/json"],
  );
  const name = `node-a.${(BigInt(clock.now()) * 1_000_000n + 1n).toString(16)}`;
  assert.deepEqual(object, {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name, namespace: "default" },
    eventTime: "2026-01-02T03:04:05.000000Z",
    reportingController: "kube-proxy",
    reportingInstance: "kube-proxy-host.example",
    action: "StartKubeProxy",
    reason: "Starting",
    regarding: { apiVersion: "v1", kind: "Node", name: "node-a", uid: "node-a" },
    type: "Normal",
  });
  stop.abort();
  await running;
  assert.equal(clock.timerCount, 0);
});

test("repetitions count in one object, which is written at the second, every half hour, and at the end", async () => {
  const { clock, sent, recorder, start } = setUp();
  void start();
  const repeat = async (): Promise<void> => {
    recorder.record(STARTING);
    await clock.advance(MINUTE_MS);
  };
  await repeat();
  await repeat();
  assert.deepEqual(
    sent.map(({ method }) => method),
    ["POST", "PATCH"],
  );
  const name = String(Object(sent[0]?.object.metadata).name);
  assert.deepEqual(sent[1], {
    method: "PATCH",
    path: `/apis/events.k8s.io/v1/namespaces/default/events/${name}`,
    contentType: "application/strategic-merge-patch+json",
    object: { series: { count: 2, lastObservedTime: "2026-01-02T03:05:05.000000Z" } },
  });
  for (let minute = 2; minute < 29; minute++) await repeat();
  assert.equal(sent.length, 2);
  for (let minute = 29; minute < 32; minute++) await repeat();
  assert.equal(sent.length, 3);
  await clock.advance(10 * MINUTE_MS);
  assert.equal(sent.length, 4);
  assert.deepEqual(sent[3]?.object, { series: { count: 32, lastObservedTime: "2026-01-02T03:35:05.000000Z" } });
  recorder.record(STARTING);
  await clock.settle();
  assert.equal(sent[4]?.method, "POST", "after the end it is a new event");
});

test("an event object that is gone is written again with its count", async () => {
  const { clock, sent, recorder, start } = setUp(({ method }) => {
    if (method === "PATCH") throw new ApiError("not_found", { request: "patch events", detail: "404", status: 404 });
  });
  void start();
  recorder.record(STARTING);
  await clock.settle();
  recorder.record(STARTING);
  await clock.settle();
  assert.deepEqual(
    sent.map(({ method }) => method),
    ["POST", "PATCH", "POST"],
  );
  assert.equal(Object(sent[2]?.object.series).count, 2);
});

test("what the server refuses is dropped with one line", async () => {
  const { clock, sent, log, recorder, start } = setUp(() => {
    throw new ApiError("forbidden", { request: "create events", detail: "403", status: 403 });
  });
  void start();
  recorder.record(STARTING);
  await clock.advance(30 * MINUTE_MS);
  assert.equal(sent.length, 1);
  assert.deepEqual(log.errors(), ["Server rejected event (will not retry!): create events: 403"]);
});

test("without an answer it is tried twelve times, ten seconds apart", async () => {
  const { clock, sent, log, recorder, start } = setUp(() => {
    throw new ApiError("unreachable", { request: "create events", detail: "no answer" });
  });
  void start();
  recorder.record(STARTING);
  await clock.advance(109_000);
  assert.equal(sent.length, 11);
  await clock.advance(30 * MINUTE_MS);
  assert.equal(sent.length, 12);
  assert.deepEqual(log.errors(), ["Unable to write event (retry limit exceeded!)"]);
});

test("a thousand events wait at most, and long notes are cut to what the API takes", async () => {
  const { clock, sent, recorder, start } = setUp();
  for (let index = 0; index < 1_100; index++) recorder.record({ ...STARTING, note: `${index} ${"x".repeat(2_000)}` });
  void start();
  while (sent.length < 1_000) await clock.settle();
  await clock.settle();
  assert.equal(sent.length, 1_000);
  assert.equal(String(sent[0]?.object.note).length, 1_024);
});

test("an event about a Service goes into its namespace", async () => {
  const { clock, sent, recorder, start } = setUp();
  void start();
  const regarding = { apiVersion: "v1", kind: "Service", namespace: "prod", name: "web" } as const;
  recorder.record({ ...STARTING, regarding });
  await clock.settle();
  assert.equal(sent[0]?.path, "/apis/events.k8s.io/v1/namespaces/prod/events");
  assert.deepEqual(sent[0]?.object.regarding, regarding);
});

test("an event has the UID of its object; an object that was made again has events of its own", async () => {
  const uids = new Map([["web", "uid-1"]]);
  const { clock, sent, recorder, start } = setUp(undefined, ({ name }) => uids.get(name));
  void start();
  const regarding = { apiVersion: "v1", kind: "Service", namespace: "prod", name: "web" } as const;
  recorder.record({ ...STARTING, regarding });
  uids.set("web", "uid-2");
  recorder.record({ ...STARTING, regarding });
  await clock.settle();
  assert.deepEqual(
    sent.map(({ method, object }) => [method, Object(object.regarding).uid]),
    [
      ["POST", "uid-1"],
      ["POST", "uid-2"],
    ],
  );
});

test("a caller that waits for what was recorded is told when it was sent, or given up", async () => {
  const { clock, recorder, start } = setUp((_request, count) => {
    if (count === 1) throw new ApiError("unreachable", { request: "create events", detail: "no answer" });
  });
  const told: string[] = [];
  await recorder.idle();
  recorder.record(STARTING);
  void recorder.idle().then(() => told.push("idle"));
  void start();
  await clock.settle();
  assert.deepEqual(told, [], "the first attempt failed");
  await clock.advance(MINUTE_MS);
  assert.deepEqual(told, ["idle"]);
});

test("a note is cut to what the API server takes, which counts bytes", async () => {
  const { clock, sent, recorder, start } = setUp();
  recorder.record({ ...STARTING, note: `x${"ü".repeat(600)}` });
  void start();
  await clock.settle();
  const note = String(sent[0]?.object.note);
  assert.equal(note, `x${"ü".repeat(511)}`);
});
