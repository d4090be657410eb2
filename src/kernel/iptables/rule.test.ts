import assert from "node:assert/strict";
import { test } from "node:test";
import { equalRules, type Rule, type RuleMatch } from "./rule.ts";

const rule = (...matches: RuleMatch[]): Rule => ({
  chain: "KUBE-A",
  matches,
  target: { kind: "jump", chain: "KUBE-B" },
});
const mark = (value: number): RuleMatch => ({ kind: "mark", value, mask: 1 });
const states = (...names: string[]): RuleMatch => ({ kind: "conntrack-state", states: names });

test("rules are the same when all their parts are, in the same order", () => {
  assert.ok(equalRules(rule(mark(1), states("NEW", "DNAT")), rule(mark(1), states("NEW", "DNAT"))));
  const one = rule(mark(1), states("NEW"));
  for (const other of [
    rule(mark(2), states("NEW")),
    rule(states("NEW"), mark(1)),
    rule(mark(1)),
    rule(mark(1), states("NEW"), mark(1)),
    rule(mark(1), states("NEW", "DNAT")),
    rule(mark(1), states("DNAT")),
    rule(mark(1), { kind: "conntrack-state", states: ["NEW"], negate: true }),
    { ...one, chain: "KUBE-C" },
    { ...one, target: { kind: "drop" } },
  ] as const) {
    assert.ok(!equalRules(one, other), JSON.stringify(other));
    assert.ok(!equalRules(other, one), JSON.stringify(other));
  }
});

test("a printed rule is the same as its print alone", () => {
  assert.ok(equalRules({ chain: "KUBE-A", printed: "-j KUBE-B" }, { chain: "KUBE-A", printed: "-j KUBE-B" }));
  assert.ok(!equalRules({ chain: "KUBE-A", printed: "-j KUBE-B" }, rule()));
  assert.ok(!equalRules(rule(), { chain: "KUBE-A", printed: "-j KUBE-B" }));
});
