import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { removeStartupTaint } from "./startup-taint.ts";
import { recordingLog } from "./testing/recording-log.ts";

test("a start-up taint that may not be removed is told once, again when the reason changes, and every five minutes", async () => {
  const clock = new FakeClock();
  const log = recordingLog();
  let reason = "patch nodes: 403 Forbidden";
  let attempts = 0;
  const send = () => {
    attempts++;
    return Promise.reject(new Error(reason));
  };
  const stop = new AbortController();
  const transport = { send, close: () => {} };
  const uid = () => "one";
  const problems: (string | undefined)[] = [];
  const onProblem = (problem: string | undefined) => void problems.push(problem);
  const options = { transport, nodeName: "n", uid, key: "starting", clock, log, onProblem };
  const removing = removeStartupTaint(options, stop.signal);
  await clock.advance(299_000);
  assert.deepEqual([attempts, log.errors().length], [60, 1]);
  await clock.advance(10_000);
  assert.equal(log.errors().length, 2);
  reason = "patch nodes: 409 Conflict";
  await clock.advance(10_000);
  assert.equal(log.errors().length, 3);
  assert.deepEqual([...new Set(problems)], ["patch nodes: 403 Forbidden", reason]);
  stop.abort();
  await removing;
});
