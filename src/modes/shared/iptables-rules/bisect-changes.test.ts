import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import { IptablesRestoreError } from "../../../kernel/iptables/iptables.ts";
import type { ChainName, Rule } from "../../../kernel/iptables/rule.ts";
import { bisectChanges, removalOf } from "./bisect-changes.ts";
import type { OwnerChange } from "./delta-payload.ts";
import { remembered, type SpelledRules, spell } from "./owner-rules.ts";
import type { ServicePortPlan, ServiceTable, SharedRule } from "./rules-plan.ts";

/** A kernel with the shared chain S in both tables that rejects rules with these words in a comment. */
async function kernelRefusing(...words: string[]): Promise<MemoryIptables> {
  const kernel = new MemoryIptables("IPv4", { backEnd: "legacy" });
  await kernel.ensureChain("filter", "S");
  await kernel.ensureChain("nat", "S");
  const restore = kernel.restore.bind(kernel);
  kernel.restore = async (payload, options) => {
    const tables = [...payload].join("").split(/(?<=^COMMIT\n)/m);
    for (const table of tables) {
      if (words.some((word) => table.split("\n").some((line) => /^-[AI] /.test(line) && line.includes(word)))) {
        throw new IptablesRestoreError("failed", "iptables-restore", 1, "no", undefined);
      }
      await restore([table], options);
    }
  };
  return kernel;
}

const entry = (table: ServiceTable, text: string): SharedRule => ({
  table,
  rule: { chain: "S", matches: [{ kind: "comment", text }], target: { kind: "accept" } },
});

/** The state in the kernel after a plan with these rules. */
function rules(overrides: Partial<ServicePortPlan>): SpelledRules {
  return spell({ shared: [], ownChains: [], ownRules: [], ...overrides });
}

/** Entries in both tables. */
const both = (name: string) => rules({ shared: [entry("filter", `f-${name}`), entry("nat", `n-${name}`)] });

const change = (owner: string, before: SpelledRules | undefined, after: SpelledRules): OwnerChange => ({
  owner,
  before,
  after,
});

const add = (owner: string) => change(owner, undefined, both(owner));

function entries(kernel: MemoryIptables, table: "filter" | "nat"): string[] {
  return [...kernel.dump(table).matchAll(/^-A S .*--comment "?([^" ]+)"?/gm)].map(([, name = ""]) => name);
}

const quiet = { onRefused: () => {} };

test("an offender that the tool names is left out at once", async () => {
  const kernel = new MemoryIptables("IPv4", { backEnd: "legacy" });
  for (const table of ["filter", "nat"] as const) await kernel.ensureChain(table, "S");
  const restore = kernel.restore.bind(kernel);
  let refusals = 0;
  kernel.restore = async (payload, options) => {
    const text = [...payload].join("");
    const line = text.split("\n").findIndex((one) => one.includes("n-c")) + 1;
    if (line > 0) throw new IptablesRestoreError("failed", "iptables-restore", 1, "no", line);
    await restore([text], options);
  };
  const changes = ["a", "b", "c", "d", "e", "f", "g"].map(add);
  const { refused } = await bisectChanges(kernel, changes, { onRefused: () => refusals++ });
  assert.deepEqual([[...refused], refusals], [[["c", "no"]], 1]);
  assert.deepEqual(entries(kernel, "nat").sort(), ["n-a", "n-b", "n-d", "n-e", "n-f", "n-g"]);
});

test("all owners but the offenders are programmed, however many there are and wherever", async () => {
  const owners = ["a", "b", "c", "d", "e", "f", "g"];
  const kernel = await kernelRefusing("f-b", "n-f", "f-g");
  let refusals = 0;
  const result = await bisectChanges(kernel, owners.map(add), { onRefused: () => void refusals++ });
  assert.deepEqual([...result.refused.keys()].sort(), ["b", "f", "g"]);
  assert.equal(result.refused.get("b"), "no");
  assert.deepEqual(result.accepted, ["a", "c", "d", "e"]);
  assert.deepEqual(entries(kernel, "nat").sort(), ["n-a", "n-c", "n-d", "n-e"]);
  // The filter entry of the owner that nat rejected was undone.
  assert.deepEqual(entries(kernel, "filter").sort(), ["f-a", "f-c", "f-d", "f-e"]);
  assert.equal(result.states.get("f"), undefined);
  assert.deepEqual(result.states.get("a"), remembered(both("a")));
  assert.ok(refusals > 3);
});

test("an offender keeps what it had", async () => {
  const kernel = await kernelRefusing("n-new");
  const before = both("old");
  await bisectChanges(kernel, [change("a", undefined, before)], quiet);
  const result = await bisectChanges(kernel, [change("a", before, both("new"))], quiet);
  assert.equal(result.states.get("a"), before);
  assert.deepEqual([entries(kernel, "filter"), entries(kernel, "nat")], [["f-old"], ["n-old"]]);
});

test("the first change ends up last in a shared chain, for each goes to the head", async () => {
  const kernel = await kernelRefusing("n-c");
  await bisectChanges(kernel, ["d", "c", "b", "a"].map(add), quiet);
  assert.deepEqual(entries(kernel, "nat"), ["n-a", "n-b", "n-d"]);
});

test("a chain that cannot be deleted is named by itself, and its owner is programmed", async () => {
  const kernel = await kernelRefusing();
  const own = (...endpoints: string[]) =>
    rules({
      ownChains: ["SVC", ...endpoints] as ChainName[],
      ownRules: endpoints.map((chain): Rule => ({ chain: "SVC", matches: [], target: { kind: "jump", chain } })),
    });
  const before = own("SEP-1", "SEP-2");
  await bisectChanges(kernel, [change("a", undefined, before)], quiet);
  await kernel.ensureRule("nat", "OUTPUT", ["-j", "SEP-1"]);
  const result = await bisectChanges(kernel, [change("a", before, own("SEP-3"))], quiet);
  assert.deepEqual(result.accepted, ["a"]);
  assert.deepEqual([...result.refused.keys()], ["chain SEP-1"]);
  assert.deepEqual(kernel.chains("nat").slice(4), ["S", "SEP-1", "SEP-3", "SVC"]);
  await kernel.deleteRule("nat", "OUTPUT", ["-j", "SEP-1"]);
  const again = await bisectChanges(kernel, [removalOf("SEP-1" as ChainName)], quiet);
  assert.deepEqual([again.refused.size, again.accepted], [0, ["chain SEP-1"]]);
  assert.deepEqual(kernel.chains("nat").slice(4), ["S", "SEP-3", "SVC"]);
});

test("chains that jump to one another go, though others have to stay", async () => {
  const kernel = await kernelRefusing();
  await kernel.restore(["*nat\n:A - [0:0]\n:B - [0:0]\n:C - [0:0]\n-A B -j A\n-A OUTPUT -j C\nCOMMIT\n"]);
  const result = await bisectChanges(kernel, (["A", "B", "C"] as ChainName[]).map(removalOf), quiet);
  assert.deepEqual([...result.refused.keys()], ["chain C"]);
  assert.deepEqual(kernel.chains("nat").slice(4), ["C", "S"]);
});

test("patience ends after so many refusals; what was not tried is neither accepted nor refused", async () => {
  const kernel = await kernelRefusing("n-");
  const result = await bisectChanges(kernel, ["a", "b", "c", "d"].map(add), { ...quiet, maxRefusals: 3 });
  assert.deepEqual([[...result.refused.keys()], result.accepted], [["a"], []]);
  assert.deepEqual(entries(kernel, "filter"), []);
});

test("a held lock is no port's fault: it ends the whole attempt", async () => {
  const kernel = await kernelRefusing();
  kernel.isLocked = true;
  await assert.rejects(bisectChanges(kernel, [add("a")], quiet), { code: "lock_held" });
});
