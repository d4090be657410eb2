/** `render` for the conformance cases: in a kernel with our jumps, its text gives what upstream leaves on a node. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ruleArguments } from "../../src/kernel/iptables/rule-text.ts";
import { COUNTERS } from "../../src/modes/iptables/plan-options.ts";
import { JUMP_RULES } from "../../src/modes/shared/iptables-rules/top-level-rules.ts";
import { render } from "../../src/tools/cli/render.ts";
import { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import { canonicalIptables } from "../conformance/canonical-iptables.ts";
import { caseFile, caseNames, caseState } from "../conformance/conformance-case.ts";
import { runCommand } from "./run-command.ts";

const FAMILIES = [
  { family: "IPv4", option: "ipv4", dump: "iptables.txt" },
  { family: "IPv6", option: "ipv6", dump: "ip6tables.txt" },
] as const;

/** The rules of a node after a first full sync that sends the text. */
async function nodeAfter(text: string, family: "IPv4" | "IPv6"): Promise<string> {
  const kernel = new MemoryIptables(family, { counters: new Set(Object.values(COUNTERS)) });
  for (const { table, rule, target } of JUMP_RULES) {
    await kernel.ensureChain(table, target);
    await kernel.ensureRule(table, rule.chain, ruleArguments(rule));
  }
  await kernel.restore([text]);
  return (["filter", "nat"] as const).map((table) => kernel.dump(table).replaceAll(/ \[0:0\]$/gm, "")).join("");
}

/** Dumps differ in how they print a counter that all programs write in the same way. */
function comparable(saved: string): string {
  return canonicalIptables(saved.replaceAll(/--nfacct-name +/g, "--nfacct-name "));
}

test("the text for every case is what a full sync sends, in both families", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  for (const name of caseNames()) {
    const { node, services, slices } = caseState(name);
    const manifests = JSON.stringify({ apiVersion: "v1", kind: "List", items: [node, ...services, ...slices] });
    const config = join(folder, "config.yaml");
    writeFileSync(config, caseFile(name, "iptables/config.yaml"));
    for (const { family, option, dump } of FAMILIES) {
      const args = ["-f", "-", "--config", config, "--family", option, "--hostname-override", "node-a"];
      const { status, out } = await runCommand(render, args, manifests);
      assert.equal(status, 0, name);
      const expected = caseFile(name, `iptables/${dump}`);
      assert.equal(comparable(await nodeAfter(out, family)), comparable(expected), `${name} ${family}`);
    }
  }
});
