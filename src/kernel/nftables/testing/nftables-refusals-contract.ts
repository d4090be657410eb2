/** Which transactions {@link Nftables} rejects, with which code, and that nothing of them stays; and generations. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftErrorCode, NftOperation } from "../nftables.ts";
import type { NftRule } from "../ruleset.ts";
import {
  A,
  AFFINITY,
  addChain,
  addElements,
  addRule,
  addSet,
  B,
  CLUSTER_IPS,
  contentOf,
  DROP,
  deleteChain,
  deleteElements,
  EXAMPLE,
  flushChain,
  frontend,
  GOTO_B,
  generationOf,
  goto,
  ip,
  openExample,
  PREROUTING,
  refusal,
  SERVICE_IPS,
} from "./nftables-example.ts";
import type { NftablesSubject } from "./nftables-subject.ts";

/** Operations that fail on {@link EXAMPLE}; the last one of each causes the error. */
const REFUSED: readonly (readonly [
  what: string,
  codes: readonly NftErrorCode[],
  operations: readonly NftOperation[],
])[] = [
  ["a rule for a missing chain", ["not_found"], [addRule("gone", DROP)]],
  ["a rule that goes to a missing chain", ["not_found"], [addRule(B, jumpTo("gone"))]],
  ["a rule that chooses among missing chains", ["not_found"], [addRule(B, chooseFrom(A, "gone"))]],
  ["a rule that looks into a missing set", ["not_found"], [addRule(B, lookInto("gone"))]],
  ["a rule that fills a missing set", ["not_found"], [addRule(B, remember("gone"))]],
  ["a rule that jumps to a base chain", ["unsupported"], [addRule(B, jumpTo("nat-prerouting"))]],
  [
    "an element for a missing set",
    ["not_found"],
    [addElements({ ...CLUSTER_IPS, name: "gone" }, { key: [ip("10.96.0.9")] })],
  ],
  [
    "an element that goes to a missing chain",
    ["not_found"],
    [addElements(SERVICE_IPS, frontend(goto("gone"), "10.96.0.2"))],
  ],
  ["a key that is there with another verdict", ["exists"], [addElements(SERVICE_IPS, frontend(goto(B)))]],
  ["a key that is there, for dropping", ["exists"], [addElements(SERVICE_IPS, frontend({ kind: "drop" }))]],
  ["deleting a missing element", ["not_found"], [deleteElements(CLUSTER_IPS, { key: [ip("10.96.0.9")] })]],
  [
    "deleting an element twice",
    ["not_found"],
    [deleteElements(SERVICE_IPS, frontend(goto(A))), deleteElements(SERVICE_IPS, frontend(goto(A)))],
  ],
  ["deleting a chain with rules", ["busy"], [deleteElements(SERVICE_IPS, frontend(goto(A))), deleteChain(A)]],
  ["deleting a chain that an element goes to", ["busy"], [flushChain(A), deleteChain(A)]],
  ["deleting a chain that a rule goes to", ["busy"], [addRule(A, GOTO_B), deleteChain(B)]],
  ["deleting a missing chain", ["not_found"], [deleteChain("gone")]],
  ["flushing a missing chain", ["not_found"], [flushChain("gone")]],
  ["deleting a set that a rule fills", ["busy"], [{ kind: "delete-set", set: AFFINITY.name }]],
  ["deleting a map that a rule looks into", ["busy"], [{ kind: "delete-set", set: SERVICE_IPS.name }]],
  ["deleting a missing set", ["not_found"], [{ kind: "delete-set", set: "gone" }]],
  ["flushing a missing set", ["not_found"], [{ kind: "flush-set", set: { ...CLUSTER_IPS, name: "gone" } }]],
  ["a set with the name of one of other keys", ["exists"], [addSet({ ...CLUSTER_IPS, key: ["port"] })]],
  ["a map with the name of a set", ["exists"], [addSet({ ...CLUSTER_IPS, isMap: true })]],
  ["a base chain with the name of a regular one", ["exists", "unsupported"], [addChain(A, PREROUTING)]],
  [
    "a base chain at another hook",
    ["unsupported", "exists"],
    [addChain("nat-prerouting", { ...PREROUTING, hook: "output" })],
  ],
  [
    "a base chain of other priority",
    ["unsupported", "exists"],
    [addChain("nat-prerouting", { ...PREROUTING, priority: 5 })],
  ],
  ["a base chain of another type", ["exists"], [addChain("nat-prerouting", { ...PREROUTING, type: "filter" })]],
  ["anything after the table was deleted", ["not_found"], [{ kind: "delete-table" }, addChain("x")]],
];

function jumpTo(chain: string): NftRule {
  return { statements: [{ kind: "verdict", verdict: { kind: "jump", chain } }] };
}

function chooseFrom(...chains: string[]): NftRule {
  return { statements: [{ kind: "random-vmap", verdicts: chains.map(goto) }] };
}

function lookInto(set: string): NftRule {
  return { statements: [{ kind: "lookup", fields: ["saddr"], set }] };
}

function remember(set: string): NftRule {
  return { statements: [{ kind: "update", set, field: "saddr" }] };
}

export function nftablesRefusals(subject: NftablesSubject): void {
  for (const [what, codes, operations] of REFUSED) {
    test(`refuses ${what}, and nothing of the transaction stays`, async (t) => {
      const { nft } = await openExample(subject, t);
      const before = await contentOf(nft);
      const harmless = [addChain("new"), addElements(CLUSTER_IPS, { key: [ip("10.96.0.77")] })];
      const error = await refusal(nft.transact([...harmless, ...operations]));
      assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
      assert.equal(error.operation, harmless.length + operations.length - 1, error.message);
      assert.deepEqual(await contentOf(nft), before);
    });
  }

  test("without a table everything but adding it is refused", async (t) => {
    const { nft } = await subject.open(t);
    for (const operation of [addChain(A), addSet(CLUSTER_IPS), { kind: "delete-table" } as const]) {
      const { code, operation: index } = await refusal(nft.transact([operation]));
      assert.deepEqual([code, index], ["not_found", 0]);
    }
  });

  test("every transaction begins another generation", async (t) => {
    const { nft } = await openExample(subject, t);
    const first = await generationOf(nft);
    assert.equal(await generationOf(nft), first);
    await nft.transact([addChain("x")]);
    assert.notEqual(await generationOf(nft), first);
  });

  test("a refused transaction, or one of nothing, leaves the generation", async (t) => {
    const { nft } = await openExample(subject, t);
    const generation = await generationOf(nft);
    await refusal(nft.transact([deleteChain("gone")]));
    await nft.transact([]);
    assert.equal(await generationOf(nft), generation);
    await nft.transact([addChain("x")], { generation });
  });

  test("refuses a transaction that was made for an older generation", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    const generation = await generationOf(nft);
    await foreign({ kind: "add-rule", chain: A });
    const before = await contentOf(nft);
    const error = await refusal(nft.transact([addChain("x")], { generation }));
    assert.deepEqual([error.code, error.operation], ["conflict", undefined]);
    assert.deepEqual(await contentOf(nft), before);
    await nft.transact([addChain("x")], { generation: await generationOf(nft) });
  });

  test("a jump of another program's keeps a chain from being deleted", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    await foreign({ kind: "add-jump", chain: "theirs", to: B });
    const error = await refusal(nft.transact([deleteChain(B)]));
    assert.deepEqual([error.code, error.operation], ["busy", 0]);
  });
}
