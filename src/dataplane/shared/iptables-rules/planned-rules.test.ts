import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChainName, Rule } from "../../../kernel/iptables/rule.ts";
import { PlanMemory } from "./planned-rules.ts";
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
    lacksLocal: { internal: false, external: port === 1 },
  };
}

const planner = { plan: planOf, sharedRules: (port: number) => planOf(port).shared };

test("what is remembered of a plan tells all of it again", () => {
  const memory = new PlanMemory(planner);
  const rules = memory.remember(80, planOf(80));
  assert.deepEqual(rules.plan(), planOf(80));
  assert.deepEqual(rules.shared, planOf(80).shared);
  assert.deepEqual(rules.ownChains, [SVC, SEP]);
  assert.deepEqual(rules.lacksLocal, { internal: false, external: false });
  assert.deepEqual(memory.remember(1, planOf(1)).lacksLocal, { internal: false, external: true });
});

test("rules are counted by chain, and own chains by what is in them and what goes to them in nat", () => {
  const rules = new PlanMemory(planner).remember(80, planOf(80));
  assert.equal(rules.ownRuleCount, 3);
  // Three rules, one of them to an own chain, and two entries of nat.
  assert.equal(rules.ownUses, 6);
  assert.deepEqual(
    [...rules.sharedCounts.nat],
    [
      ["KUBE-SERVICES", 1],
      ["KUBE-NODEPORTS", 1],
    ],
  );
  assert.deepEqual([...rules.sharedCounts.filter], [["KUBE-NODEPORTS", 1]]);
});

test("a port without chains of its own has none", () => {
  const plan: ServicePortPlan = { ...planOf(80), ownChains: [], ownRules: [] };
  const rules = new PlanMemory(planner).remember(80, plan);
  assert.deepEqual([rules.ownChains, rules.ownRuleCount, rules.ownUses], [[], 0, 0]);
});
