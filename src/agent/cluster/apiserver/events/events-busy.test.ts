/** Events on a node that records others every 20 s, and with a server that sends Retry-After. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { ApiError } from "../connection/api-error.ts";
import type { ApiRequest, ApiResponse } from "../connection/transport.ts";
import { recordingLog } from "../testing/recording-log.ts";
import type { EventFacts } from "./event-object.ts";
import { EventRecorder } from "./events.ts";

const STARTING: EventFacts = {
  regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
  type: "Normal",
  reason: "Starting",
  action: "StartKubeProxy",
  note: "",
};
const costly = (name: string): EventFacts => ({
  ...{ type: "Warning", reason: "CostlyService", action: "Sync", note: "took 2 s" },
  regarding: { apiVersion: "v1", kind: "Service", namespace: "default", name },
});

function setUp(answer: (count: number) => void = () => {}) {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 4, 5));
  const sent: string[] = [];
  const send = (request: ApiRequest): Promise<ApiResponse> => {
    sent.push(`${request.method} ${JSON.parse(request.body?.text ?? "{}").reason ?? "series"}`);
    answer(sent.length);
    return Promise.resolve({ contentType: "application/json", body: (async function* () {})() });
  };
  const recorder = new EventRecorder({
    ...{ transport: { send }, hostname: "h", clock, log: recordingLog(), random: () => 0 },
  });
  void recorder.run(new AbortController().signal);
  return { clock, sent, recorder };
}

test("an event is over after six minutes, also while others come", async () => {
  const { clock, sent, recorder } = setUp();
  recorder.record(STARTING);
  await clock.settle();
  for (let index = 0; index < 30; index++) {
    recorder.record(costly(`s${index}`));
    await clock.advance(20_000);
  }
  recorder.record(STARTING);
  await clock.settle();
  assert.equal(sent.at(-1), "POST Starting");
});

test("a running series is written every half hour, also while others come", async () => {
  const { clock, sent, recorder } = setUp();
  for (let index = 0; index < 200; index++) {
    recorder.record(STARTING);
    recorder.record(costly(`s${index}`));
    await clock.advance(20_000);
  }
  // In 67 minutes: at the second event, after 30 minutes and after 60.
  assert.equal(sent.filter((one) => one === "PATCH series").length, 3);
});

test("an event that the server puts off (429, Retry-After) is sent again", async () => {
  const { clock, sent, recorder } = setUp((count) => {
    const facts = { request: "create events", detail: "429 TooManyRequests", status: 429, retryAfterMs: 1_000 };
    if (count === 1) throw new ApiError("too_many_requests", facts);
  });
  recorder.record(STARTING);
  await clock.settle();
  await clock.advance(60_000);
  assert.deepEqual(sent, ["POST Starting", "POST Starting"]);
});
