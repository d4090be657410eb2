import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChainName, Rule } from "../../../kernel/iptables/rule.ts";
import { countByChain, declaredChains, remembered, spell } from "./owner-rules.ts";
import type { ServicePortPlan, SharedRule } from "./rules-plan.ts";

const SVC = "KUBE-SVC-A" as ChainName;
const SEP = "KUBE-SEP-A" as ChainName;

const jump = (chain: string, target: string): Rule => ({ chain, matches: [], target: { kind: "jump", chain: target } });

function planOf(port: number): ServicePortPlan {
  const shared: SharedRule[] = [
    { table: "nat", rule: jump("KUBE-SERVICES", SVC) },
    { table: "nat", rule: jump("KUBE-NODEPORTS", SVC) },
    { table: "filter", rule: jump("KUBE-NODEPORTS", SVC) },
  ];
  const dnat: Rule = { chain: SEP, matches: [], target: { kind: "dnat", to: `10.0.0.1:${port}` } };
  return {
    shared,
    ownChains: [SVC, SEP],
    ownRules: [jump(SVC, SEP), jump(SEP, "KUBE-MARK-MASQ"), dnat],
  };
}

test("what is remembered of a plan is everything but the rules of its own chains", () => {
  const { ownRules, ...rest } = spell(planOf(80));
  assert.deepEqual(remembered(spell(planOf(80))), rest);
  assert.equal(rest.nat, `-A KUBE-SERVICES -j ${SVC}\n-A KUBE-NODEPORTS -j ${SVC}\n`);
  assert.equal(rest.filter, `-A KUBE-NODEPORTS -j ${SVC}\n`);
  assert.deepEqual(declaredChains(rest.ownChains), [SVC, SEP]);
  assert.match(ownRules, /^-A KUBE-SVC-A -j KUBE-SEP-A\n-A KUBE-SEP-A -j KUBE-MARK-MASQ\n.* 10\.0\.0\.1:80\n$/);
});

test("rules are counted by chain, and own chains by what is in them and what goes to them in nat", () => {
  const rules = spell(planOf(80));
  assert.equal(rules.ownRuleCount, 3);
  // Three rules, one of which jumps to an own chain, and two entries in nat.
  assert.equal(rules.ownUses, 6);
  assert.deepEqual(
    [...countByChain(rules.nat)],
    [
      ["KUBE-SERVICES", 1],
      ["KUBE-NODEPORTS", 1],
    ],
  );
  assert.deepEqual([...countByChain(rules.filter)], [["KUBE-NODEPORTS", 1]]);
});

test("a port without chains of its own has none", () => {
  const rules = spell({ ...planOf(80), ownChains: [], ownRules: [] });
  assert.deepEqual([rules.ownChains, rules.ownRuleCount, rules.ownUses], ["", 0, 0]);
});

test("a name that no rule can carry cannot be spelled", () => {
  const rule: Rule = { ...jump("S", SVC), matches: [{ kind: "comment", text: 'say "b"' }] };
  assert.throws(() => spell({ ...planOf(80), shared: [{ table: "nat", rule }] }), /cannot be written into a rule/);
});
