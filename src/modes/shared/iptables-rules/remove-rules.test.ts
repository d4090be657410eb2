import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import { memoryLog } from "../../../agent/server/testing/memory-log.ts";
import { ruleArguments } from "../../../kernel/iptables/rule-text.ts";
import { silentLogger } from "../../../logging/logger.ts";
import { cleanUpIptables } from "./remove-rules.ts";
import { JUMP_RULES } from "./top-level-rules.ts";

/** A kernel as a proxy leaves it: jumps, service chains that refer to one another, canaries. */
async function used(): Promise<MemoryIptables> {
  const kernel = new MemoryIptables("IPv4");
  for (const { table, rule, target } of JUMP_RULES) {
    await kernel.ensureChain(table, target);
    await kernel.ensureRule(table, rule.chain, ruleArguments(rule));
  }
  for (const table of ["filter", "nat", "mangle"] as const) await kernel.ensureChain(table, "KUBE-PROXY-CANARY");
  await kernel.restore([
    `*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-EXT-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-FW-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SVL-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-SERVICES -p tcp -j KUBE-FW-AAAAAAAAAAAAAAAA
-A KUBE-FW-AAAAAAAAAAAAAAAA -j KUBE-EXT-AAAAAAAAAAAAAAAA
-A KUBE-EXT-AAAAAAAAAAAAAAAA -j KUBE-SVL-AAAAAAAAAAAAAAAA
-A KUBE-SVL-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -j KUBE-MARK-MASQ
COMMIT
`,
  ]);
  return kernel;
}

const FOREIGN = [
  "*nat\n:KUBE-MARK-DROP - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE\nCOMMIT\n",
  "*filter\n:KUBE-SVC-LOOKALIKE - [0:0]\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n",
];

test("all that is ours goes; foreign rules, the kubelet's chains and KUBE-FIREWALL stay", async () => {
  const kernel = await used();
  await kernel.restore(FOREIGN);
  assert.equal(await cleanUpIptables(kernel, silentLogger), true);
  const expected = new MemoryIptables("IPv4");
  await expected.ensureChain("filter", "KUBE-FIREWALL");
  for (const chain of ["INPUT", "OUTPUT"]) await expected.ensureRule("filter", chain, ["-j", "KUBE-FIREWALL"]);
  await expected.restore(FOREIGN);
  for (const table of ["filter", "nat", "mangle"] as const) assert.equal(kernel.dump(table), expected.dump(table));
});

test("on a clean host nothing happens, and it counts as done", async () => {
  const kernel = new MemoryIptables("IPv4");
  assert.equal(await cleanUpIptables(kernel, silentLogger), true);
  assert.equal(kernel.restoreCount, 0);
});

test("what cannot be removed is reported, and the rest goes on", async () => {
  const kernel = await used();
  await kernel.ensureChain("nat", "FOREIGN");
  await kernel.ensureRule("nat", "FOREIGN", ["-j", "KUBE-SEP-AAAAAAAAAAAAAAAA"]);
  const log = memoryLog();
  assert.equal(await cleanUpIptables(kernel, log), false);
  assert.equal(log.errors.length, 1);
  assert.match(log.errors[0] ?? "", /chains of table nat.*KUBE-SEP-AAAAAAAAAAAAAAAA/s);
  assert.deepEqual(kernel.rules("nat", "PREROUTING"), []);
  assert.deepEqual(
    kernel.chains("filter").filter((chain) => chain.startsWith("KUBE-")),
    ["KUBE-FIREWALL"],
  );
  assert.deepEqual(
    kernel.chains("mangle").filter((chain) => chain.startsWith("KUBE-")),
    [],
  );
});

test("with the lock held nothing is removed, and that is no success", async () => {
  const kernel = await used();
  kernel.isLocked = true;
  const before = kernel.dump("nat");
  const log = memoryLog();
  assert.equal(await cleanUpIptables(kernel, log), false);
  assert.equal(kernel.dump("nat"), before);
  assert.match(log.errors.join("\n"), /xtables lock/);
});

/** A table of chains, each of which jumps to the next. */
async function manyChains(backEnd: "nft" | "legacy"): Promise<MemoryIptables> {
  const kernel = new MemoryIptables("IPv4", { backEnd });
  const chains = Array.from({ length: 1_201 }, (_, index) => `KUBE-SEP-${String(index).padStart(16, "A")}`);
  const jumps = chains.map((chain, index) => `-A ${chain} -j ${chains[index + 1] ?? "RETURN"}\n`);
  await kernel.restore([`*nat\n${chains.map((chain) => `:${chain} - [0:0]\n`).join("")}${jumps.join("")}COMMIT\n`]);
  return kernel;
}

for (const backEnd of ["nft", "legacy"] as const) {
  const portions = backEnd === "nft" ? [500, 500, 201, 500, 500, 201] : [1_201];
  test(`${backEnd}: very many chains go in ${portions.length} transactions`, async (t) => {
    const kernel = await manyChains(backEnd);
    const restore = t.mock.method(kernel, "restore");
    assert.equal(await cleanUpIptables(kernel, silentLogger), true);
    assert.equal(kernel.dump("nat"), new MemoryIptables("IPv4").dump("nat"));
    const named = restore.mock.calls
      .flatMap(({ arguments: [payload] }) => [...payload].join("").split("COMMIT\n").slice(0, -1))
      .map((text) => new Set(text.match(/KUBE-SEP-\S+/g)).size);
    assert.deepEqual(named, portions);
  });
}

test("of very many chains one that another program holds keeps a portion only", async () => {
  const kernel = await manyChains("nft");
  await kernel.restore(["*nat\n:THEIRS - [0:0]\n-A THEIRS -j KUBE-SEP-AAAAAAAAAAAAAAA7\nCOMMIT\n"]);
  const log = memoryLog();
  assert.equal(await cleanUpIptables(kernel, log), false);
  assert.equal(log.errors.length, 1);
  assert.equal(kernel.chains("nat").filter((chain) => chain.startsWith("KUBE-")).length, 201);
});
