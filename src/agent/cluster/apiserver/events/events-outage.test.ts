/** Events that continue during an API server outage of hours. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { ApiError } from "../connection/api-error.ts";
import type { ApiResponse } from "../connection/transport.ts";
import { recordingLog } from "../testing/recording-log.ts";
import type { EventFacts } from "./event-object.ts";
import { EventRecorder } from "./events.ts";

const EVENTS = 40;
const costly = (index: number): EventFacts => ({
  ...{ type: "Warning", reason: "CostlyService", action: "Sync", note: "took 2 s" },
  regarding: { apiVersion: "v1", kind: "Service", namespace: "default", name: `s${index}` },
});

test("an event waits once, however long the API server is away", async () => {
  const clock = new FakeClock();
  let isAway = true;
  let sent = 0;
  const send = async (): Promise<ApiResponse> => {
    if (isAway) throw new ApiError("unreachable", { request: "create events", detail: "no answer" });
    sent++;
    return { contentType: "application/json", body: (async function* () {})() };
  };
  const recorder = new EventRecorder({ transport: { send }, hostname: "h", clock, log: recordingLog() });
  void recorder.run(new AbortController().signal);
  for (let minute = 0; minute < 8 * 60; minute += 5) {
    for (let index = 0; index < EVENTS; index++) recorder.record(costly(index));
    await clock.advance(5 * 60_000);
  }
  isAway = false;
  await clock.advance(60_000);
  assert.ok(sent <= EVENTS + 1, `${sent} requests for ${EVENTS} events`);
});
