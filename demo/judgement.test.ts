import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpAddress } from "../src/net/ip.ts";
import type { ProbeAnswer } from "../testkit/net/messages.ts";
import { type Expectation, furtherRequests, judge } from "./judgement.ts";

const peer = "10.0.0.1" as IpAddress;
const answers: Expectation = {
  kind: "answer",
  peers: new Map([
    ["a", peer],
    ["b", peer],
  ]),
  source: "kept",
  isSticky: false,
};
const sticky: Expectation = { ...answers, isSticky: true };
const refused: Expectation = { kind: "refused", why: "no endpoint is usable" };
const dropped: Expectation = { kind: "dropped", why: "policy" };
const from = (pod: string, seen: string = peer): ProbeAnswer => ({ ok: true, pod, peer: seen });
const refusal: ProbeAnswer = { ok: false, error: "refused", detail: "ECONNREFUSED" };
const silence: ProbeAnswer = { ok: false, error: "timeout", detail: "no answer in 500 ms" };

test("answers are right when every expected pod answered and saw the expected source", () => {
  assert.deepEqual(judge(answers, [from("a"), from("b")]), { isRight: true, text: "source kept", detail: "" });
});

const wrongs: readonly [string, Expectation, ProbeAnswer[], string][] = [
  ["a pod that must not answer", answers, [from("a"), from("c"), from("b")], "by c"],
  ["another source address", answers, [from("a"), from("b", "10.0.0.9")], "from 10.0.0.9"],
  ["a pod that never answers", answers, [from("a"), from("a")], "b not seen"],
  ["one silence among answers", answers, [from("a"), silence, from("b")], "no answer"],
  ["a refusal for an answer", answers, [refusal], "refused"],
  ["a client moved to another pod despite affinity", sticky, [from("a"), from("b")], "moved between pods"],
  ["an answer for a refusal", refused, [from("a")], "by a"],
  ["silence for a refusal", refused, [refusal, silence], "no answer"],
  ["a refusal for silence", dropped, [refusal], "refused"],
];
for (const [title, expected, got, text] of wrongs) {
  test(`${title} is wrong, and the detail says what was expected`, () => {
    const judgement = judge(expected, got);
    assert.equal(judgement.isRight, false);
    assert.equal(judgement.text, text);
    assert.match(judgement.detail, /^expected .+; got .+/);
  });
}

test("refusals and silence are right where they are due", () => {
  assert.equal(judge(refused, [refusal]).isRight, true);
  assert.equal(judge(dropped, [silence, silence]).isRight, true);
});

test("with affinity one pod is enough, and is named", () => {
  assert.equal(judge(sticky, [from("b"), from("b")]).text, "source kept, b");
});

test("more requests are made only while an expected pod has not been seen and nothing is wrong", () => {
  assert.equal(furtherRequests(answers, [from("a")]), 20);
  assert.equal(furtherRequests(answers, [from("a"), from("b")]), 0);
  assert.equal(furtherRequests(answers, [from("a"), silence]), 0);
  assert.equal(furtherRequests(answers, [from("c")]), 0);
  assert.equal(furtherRequests(sticky, [from("a")]), 0);
  assert.equal(furtherRequests(refused, [refusal]), 0);
  assert.equal(furtherRequests(answers, Array(200).fill(from("a"))), 0);
});
