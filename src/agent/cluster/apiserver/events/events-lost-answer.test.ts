/** An event that the server created although its response was lost. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { ApiError } from "../connection/api-error.ts";
import type { ApiResponse } from "../connection/transport.ts";
import { recordingLog } from "../testing/recording-log.ts";
import type { EventFacts } from "./event-object.ts";
import { EventRecorder } from "./events.ts";

const STARTING: EventFacts = {
  regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
  ...{ type: "Normal", reason: "Starting", action: "StartKubeProxy", note: "" },
};
const EXISTS = new ApiError("refused", {
  ...{ request: "create events", detail: '409 AlreadyExists: events "node-a.1" already exists', status: 409 },
});

async function errorsAfter(answers: readonly ApiError[]): Promise<readonly string[]> {
  const clock = new FakeClock();
  const log = recordingLog();
  let count = 0;
  const send = async (): Promise<ApiResponse> => {
    const answer = answers[count++];
    if (answer !== undefined) throw answer;
    return { contentType: "application/json", body: (async function* () {})() };
  };
  const recorder = new EventRecorder({ transport: { send }, hostname: "h", clock, log });
  const stop = new AbortController();
  const running = recorder.run(stop.signal);
  recorder.record(STARTING);
  await clock.advance(60_000);
  stop.abort();
  await running;
  assert.equal(count, answers.length);
  return log.errors();
}

test("an event that is there already when it is sent once more has arrived: no error is told", async () => {
  const cut = new ApiError("unreachable", { request: "create events", detail: "the connection was cut" });
  assert.deepEqual(await errorsAfter([cut, EXISTS]), []);
});

test("an event that is there already when it is first sent is another's", async () => {
  assert.equal((await errorsAfter([EXISTS])).length, 1);
});
