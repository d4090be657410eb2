import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import { readTable } from "../../../kernel/iptables/parser/ruleset.ts";
import { ruleArguments } from "../../../kernel/iptables/rule-text.ts";
import { ensureJumps, type KnownTables } from "./ensure-jumps.ts";
import { JUMP_RULES } from "./top-level-rules.ts";

const known = (kernel: MemoryIptables): KnownTables => ({
  filter: readTable(kernel.dump("filter"), "filter"),
  natChains: kernel.chains("nat"),
});

const tablesOf = (kernel: MemoryIptables) => kernel.dump("filter") + kernel.dump("nat");

/** The state after the steps of reference iptables.md §2, one command after the other. */
async function stepByStep(kernel: MemoryIptables): Promise<string> {
  for (const { table, rule, target } of JUMP_RULES) {
    await kernel.ensureChain(table, target);
    await kernel.ensureRule(table, rule.chain, ruleArguments(rule));
  }
  return tablesOf(kernel);
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`${family}: on a clean node one restore leaves what the single steps leave`, async () => {
    const kernel = new MemoryIptables(family);
    await ensureJumps(kernel, known(kernel), JUMP_RULES);
    assert.equal(kernel.restoreCount, 1);
    assert.equal(tablesOf(kernel), await stepByStep(new MemoryIptables(family)));
  });
}

test("what is there stays as it is, foreign rules around it included", async () => {
  const kernel = new MemoryIptables("IPv4");
  await stepByStep(kernel);
  await kernel.restore(["*filter\n-A KUBE-FIREWALL -s 10.0.0.1 -j DROP\n-I INPUT -s 10.0.0.2 -j DROP\nCOMMIT\n"]);
  const before = tablesOf(kernel);
  await ensureJumps(kernel, known(kernel), JUMP_RULES);
  assert.equal(tablesOf(kernel), before);
});

test("a jump that another program deleted comes back, without emptying its chain", async () => {
  const kernel = new MemoryIptables("IPv4");
  await stepByStep(kernel);
  await kernel.restore(["*nat\n-A KUBE-SERVICES -s 10.0.0.1 -j RETURN\nCOMMIT\n"]);
  for (const { table, rule } of JUMP_RULES) await kernel.deleteRule(table, rule.chain, ruleArguments(rule));
  await ensureJumps(kernel, known(kernel), JUMP_RULES);
  assert.equal(kernel.rules("nat", "KUBE-SERVICES").length, 1);
  for (const { table, rule } of JUMP_RULES) {
    assert.equal(await kernel.rulePresence(table, rule.chain, ruleArguments(rule)), "present");
  }
});

test("without knowledge of the tables every step is made", async () => {
  const kernel = new MemoryIptables("IPv4");
  await ensureJumps(kernel, { filter: undefined, natChains: undefined }, JUMP_RULES);
  assert.equal(kernel.restoreCount, 0);
  assert.equal(tablesOf(kernel), await stepByStep(new MemoryIptables("IPv4")));
});
