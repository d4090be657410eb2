/** The in-memory kernel against the real one: random histories of payloads end with the same results and the same text. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createIptables } from "../../../src/kernel/iptables/exec-iptables.ts";
import { type Iptables, IptablesRestoreError } from "../../../src/kernel/iptables/iptables.ts";
import { printRule } from "../../../src/kernel/iptables/parser/rule-syntax.ts";
import { binariesOf } from "../../../src/kernel/iptables/testing/binaries.ts";
import { silentLogger } from "../../../src/logging/logger.ts";
import fc from "../../support/fast-check.ts";
import { netnsFor, netnsSkip } from "../../support/netns.ts";
import { ruleArbitrary } from "../../support/rule-arbitrary.ts";
import { MemoryIptables } from "./memory-iptables.ts";

const BACK_ENDS = ["nft", "legacy"] as const;

async function host(t: TestContext, backEnd: "nft" | "legacy"): Promise<Iptables> {
  const { exec } = await netnsFor(t, `memory-${backEnd}`);
  return await createIptables({ family: "IPv4", exec, log: silentLogger, binaries: binariesOf("IPv4", backEnd) });
}

async function stateOf(iptables: Iptables): Promise<string> {
  return (await iptables.save("nat")).replace(/^#.*\n/gm, "");
}

/** Of several faults in one payload, each back end finds another first, so only the result counts, not the line. */
async function outcomeOf(restoring: Promise<void>): Promise<"accepted" | "refused"> {
  try {
    await restoring;
    return "accepted";
  } catch (error) {
    assert.ok(error instanceof IptablesRestoreError, String(error));
    return "refused";
  }
}

const chain = fc.constantFrom("KUBE-A", "KUBE-B", "KUBE-C");
const anyChain = fc.oneof({ weight: 4, arbitrary: chain }, { weight: 1, arbitrary: fc.constant("OUTPUT") });
const spec = fc.oneof(
  chain.map((name) => `-j ${name}`),
  fc.constantFrom("-s 10.0.0.1 -j RETURN", "-p tcp --dport 80 -j RETURN", "-j ACCEPT", "-m comment --comment x"),
);
const position = fc.integer({ min: 1, max: 3 });
const declaration = chain.map((name) => `:${name} - [0:0]`);
const command = fc.oneof(
  declaration,
  fc.tuple(anyChain, spec).map(([name, rule]) => `-A ${name} ${rule}`),
  fc.tuple(anyChain, spec).map(([name, rule]) => `-A ${name} ${rule}`),
  fc.tuple(anyChain, spec).map(([name, rule]) => `-I ${name} ${rule}`),
  fc.tuple(anyChain, position, spec).map(([name, at, rule]) => `-I ${name} ${at} ${rule}`),
  fc.tuple(anyChain, spec).map(([name, rule]) => `-D ${name} ${rule}`),
  fc.tuple(anyChain, position).map(([name, at]) => `-D ${name} ${at}`),
  anyChain.map((name) => `-F ${name}`),
  chain.map((name) => `-X ${name}`),
  chain.map((name) => `-N ${name}`),
);
/** Mostly valid: a payload of random commands alone would hardly ever be accepted. */
const payload = fc
  .tuple(fc.subarray([":KUBE-A - [0:0]", ":KUBE-B - [0:0]", ":KUBE-C - [0:0]"]), fc.array(command, { maxLength: 4 }))
  .map(([declared, commands]) => ["*nat", ...declared, ...commands, "COMMIT", ""].join("\n"))
  // iptables-nft counts positions in a chain that the same payload empties as if it were full.
  .filter((text) => !/^(?:-F |:)(\S+)[\s\S]*\n-[ID] \1 \d/m.test(text));

for (const backEnd of BACK_ENDS) {
  test(`random histories end as with iptables-${backEnd}`, { skip: netnsSkip }, async (t) => {
    const real = await host(t, backEnd);
    const memory = new MemoryIptables("IPv4", { backEnd });
    let accepted = 0;
    for (const text of fc.sample(payload, { numRuns: 150, seed: 20_260 })) {
      const before = memory.dump("nat");
      const outcome = await outcomeOf(memory.restore([text]));
      const realOutcome = await outcomeOf(real.restore([text]));
      assert.equal(outcome, realOutcome, `${before}\n${text}`);
      if (outcome === "accepted") accepted += 1;
      assert.equal(await stateOf(memory), await stateOf(real), `${before}\n${text}`);
    }
    assert.ok(accepted >= 30, `${accepted} payloads were accepted`);
  });

  test(`random rules are accepted and printed by iptables-${backEnd} as in memory`, { skip: netnsSkip }, async (t) => {
    const real = await host(t, backEnd);
    const memory = new MemoryIptables("IPv4");
    const rules = fc
      .sample(ruleArbitrary, { numRuns: 300, seed: 20_261 })
      .filter((rule) => isForNat(printRule(rule)))
      .map((rule) => `-A KUBE-A ${printRule(rule)}\n`);
    assert.ok(rules.length > 80, `${rules.length} rules`);
    const text = `*nat\n:KUBE-A - [0:0]\n${rules.join("")}COMMIT\n`;
    await memory.restore([text]);
    await real.restore([text]);
    assert.equal(await stateOf(memory), await stateOf(real));
  });
}

/** Rules that this test's nat table accepts: no foreign chains, counters or sets, nothing for filter, no IPVS. */
function isForNat(text: string): boolean {
  return !/-[jg] KUBE-|-j DROP|-j REJECT|-m nfacct|-m set|-m ipvs|[^\x20-\x7e]/.test(text);
}
