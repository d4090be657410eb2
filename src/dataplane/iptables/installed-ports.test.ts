import assert from "node:assert/strict";
import { test } from "node:test";
import { type InstalledRules, NO_RULES } from "../shared/iptables-rules/installed-rules.ts";
import { InstalledPorts } from "./installed-ports.ts";

function rules(nat: number, ownRuleCount: number, external = false): InstalledRules {
  const sharedCounts = { filter: new Map([["KUBE-NODEPORTS", 1]]), nat: new Map([["KUBE-SERVICES", nat]]) };
  return { ...NO_RULES, sharedCounts, ownRuleCount, lacksLocal: { internal: false, external } };
}

test("totals follow every change of an owner", () => {
  const installed = new InstalledPorts();
  installed.set("a", rules(1, 3, true));
  installed.set("b", rules(2, 4));
  assert.deepEqual(installed.ruleCounts, { filter: 2, nat: 10 });
  assert.deepEqual(installed.noLocalEndpoints, { internal: 0, external: 1 });
  installed.set("a", rules(5, 1));
  assert.deepEqual(installed.ruleCounts, { filter: 2, nat: 12 });
  assert.deepEqual([...installed.sharedCounts.nat], [["KUBE-SERVICES", 7]]);
  assert.deepEqual(installed.noLocalEndpoints, { internal: 0, external: 0 });
  installed.set("b", undefined);
  installed.set("c", undefined);
  assert.deepEqual(installed.ruleCounts, { filter: 1, nat: 6 });
  assert.deepEqual(
    [...installed].map(([owner]) => owner),
    ["a"],
  );
});

test("a full sync replaces everything", () => {
  const installed = new InstalledPorts();
  installed.set("a", rules(1, 3, true));
  installed.replace(new Map([["b", rules(2, 4)]]));
  assert.deepEqual(installed.ruleCounts, { filter: 1, nat: 6 });
  assert.deepEqual(installed.noLocalEndpoints, { internal: 0, external: 0 });
  assert.equal(installed.get("a"), undefined);
});
