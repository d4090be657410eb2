import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { InstalledRules } from "./owned-rules.ts";
import { NO_RULES, type OwnerRules } from "./owner-rules.ts";
import type { StaticPlan } from "./rules-plan.ts";

function rules(nat: number, ownRuleCount: number): OwnerRules {
  const lines = { filter: "-A KUBE-NODEPORTS -j ACCEPT\n", nat: "-A KUBE-SERVICES -j A\n".repeat(nat) };
  return { ...NO_RULES, ...lines, ownRuleCount };
}

test("totals follow every change of an owner", () => {
  const installed = new InstalledRules();
  installed.put("a", rules(1, 3));
  installed.put("b", rules(2, 4));
  assert.deepEqual(installed.ruleCounts, { filter: 2, nat: 10 });
  installed.put("a", rules(5, 1));
  assert.deepEqual(installed.ruleCounts, { filter: 2, nat: 12 });
  assert.deepEqual([...installed.chains.nat], [["KUBE-SERVICES", 7]]);
  installed.put("b", undefined);
  installed.put("c", undefined);
  assert.deepEqual(installed.ruleCounts, { filter: 1, nat: 6 });
  assert.deepEqual(
    [...installed].map(([owner]) => owner),
    ["a"],
  );
});

const fixed: StaticPlan = {
  filterChains: [],
  natChains: ["KUBE-SERVICES", "KUBE-EMPTY"] as ChainName[],
  filterHead: [],
  filterTail: [],
  natHead: [{ chain: "KUBE-POSTROUTING", matches: [], target: { kind: "return" } }],
  natTail: [{ chain: "KUBE-SERVICES", matches: [], target: { kind: "return" } }],
};

test("a full sync replaces everything, and counts the static rules", () => {
  const installed = new InstalledRules();
  installed.put("a", rules(1, 3));
  installed.replace(fixed, new Map([["b", rules(2, 4)]]));
  assert.deepEqual(installed.ruleCounts, { filter: 1, nat: 8 });
  assert.deepEqual(Object.fromEntries(installed.chains.nat), {
    "KUBE-SERVICES": 3,
    "KUBE-EMPTY": 0,
    "KUBE-POSTROUTING": 1,
  });
  assert.equal(installed.get("a"), undefined);
});
