import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { ApiError, type ApiErrorCode } from "../connection/api-error.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { Backoff } from "./backoff.ts";
import { FailureLog, type SharedCauses } from "./failure-log.ts";

test("waits double up to 30 s, and begin again after two healthy minutes", async () => {
  const clock = new FakeClock();
  const backoff = new Backoff(clock, () => 0);
  const waits = Array.from({ length: 8 }, () => backoff.next());
  assert.deepEqual(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
  await clock.advance(120_000);
  assert.equal(backoff.next(), 30_000);
  await clock.advance(120_001);
  assert.equal(backoff.next(), 800);
});

test("chance makes a wait up to twice as long", () => {
  assert.equal(new Backoff(new FakeClock(), () => 0.5).next(), 1200);
});

function failureLog() {
  const clock = new FakeClock();
  const log = recordingLog();
  const problems: (string | undefined)[] = [];
  const failures = new FailureLog(log, clock, (problem) => problems.push(problem));
  const fail = (code: ApiErrorCode = "forbidden", isHarmless = false, status?: number) =>
    failures.failed(new ApiError(code, { request: "list services", detail: code, status }), isHarmless);
  return { clock, log, problems, failures, fail };
}

test("a failure is said once, its end too, and a reminder every five minutes", async () => {
  const { clock, log, problems, failures, fail } = failureLog();
  for (let index = 0; index < 5; index++) fail();
  assert.equal(log.errors().length, 1);
  await clock.advance(300_000);
  fail();
  assert.equal(log.errors().length, 2);
  failures.succeeded();
  failures.succeeded();
  const infos = log.lines.filter(({ level }) => level === "info");
  assert.deepEqual(
    infos.map(({ message, facts }) => [message, facts.failedAttempts, facts.afterSeconds]),
    [["Watching again", 6, 300]],
  );
  assert.deepEqual(problems, ["list services: forbidden", "list services: forbidden", undefined]);
});

test("another reason is said at once", () => {
  const { log, fail } = failureLog();
  fail("unreachable");
  fail("unauthorized", false, 401);
  fail("forbidden", false, 403);
  assert.equal(log.errors().length, 3);
});

test("what all watches of a server meet alike is said by one of them, and again after one of them worked", () => {
  const clock = new FakeClock();
  const log = recordingLog();
  const causes: SharedCauses = new Map();
  const [one, other] = [0, 1].map(() => new FailureLog(log, clock, () => {}, causes));
  const fail = (failures: FailureLog | undefined, code: ApiErrorCode) =>
    failures?.failed(new ApiError(code, { request: "list", detail: code }), false);
  fail(one, "unauthorized");
  fail(other, "unauthorized");
  assert.equal(log.errors().length, 1);
  fail(one, "forbidden");
  fail(other, "forbidden");
  assert.equal(log.errors().length, 3);
  one?.succeeded();
  fail(one, "unauthorized");
  assert.equal(log.errors().length, 4);
});

test("ordinary ends are not complained of, unless nothing good follows", () => {
  const { log, failures, fail } = failureLog();
  for (let index = 0; index < 5; index++) {
    fail("unreachable", true);
    fail("expired", true);
    failures.succeeded();
  }
  assert.deepEqual(log.errors(), []);
  for (let index = 0; index < 3; index++) fail("unreachable", true);
  assert.equal(log.errors().length, 1);
});
