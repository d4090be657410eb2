/** What every {@link Nftables} does: the kernel over netlink, in a namespace of the test's own, and the one in memory. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { IpAddress } from "../../../net/ip.ts";
import { type Nftables, NftError, type NftErrorCode, type NftForeignChange, type NftOperation } from "../nftables.ts";
import { ruleDigest } from "../rule-digest.ts";
import { elementKey, type NftElement, type NftHook, type NftRule, type NftSet, type NftVerdict } from "../ruleset.ts";
import type { ForeignCommand } from "./foreign-hand.ts";

/** A fresh kernel without the table, family `ip`. */
export interface NftablesRig {
  readonly nft: Nftables;
  /** Another program does this to the same table. */
  readonly foreign: (command: ForeignCommand) => Promise<void>;
}

export interface NftablesSubject {
  readonly name: string;
  readonly open: (t: TestContext) => Promise<NftablesRig>;
  /** Why it cannot be tested here, or `false`. */
  readonly skip: string | false;
}

/** How long a notification may take. */
const NOTICE_MS = 2000;

/** A chain whose changes show that watching has begun. */
const PROBE = "probe";

const CLUSTER_IPS: NftSet = { name: "cluster-ips", key: ["address"], isMap: false, comment: "Active ClusterIPs" };
const SERVICE_IPS: NftSet = { name: "service-ips", key: ["address", "protocol", "port"], isMap: true, comment: "c" };
const NODE_PORTS: NftSet = { name: "node-ports", key: ["protocol", "port"], isMap: true };
const HAIRPIN: NftSet = { name: "hairpin", key: ["address", "address", "protocol", "port"], isMap: false };
const AFFINITY: NftSet = { name: "affinity-A-ns/a/tcp/p__1", key: ["address"], isMap: false, timeoutSeconds: 10 };
/** Of a kind from which everything else here may be reached: addresses are not translated in filter chains. */
const PREROUTING: NftHook = { type: "nat", hook: "prerouting", priority: -100 };

const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below
const A = "service-A-ns/a/tcp/p";
const B = "service-B-ns/b/tcp/p";
const goto = (chain: string): NftVerdict => ({ kind: "goto", chain });
const DROP: NftRule = { statements: [{ kind: "verdict", verdict: { kind: "drop" } }], comment: "no more" };
const GOTO_B: NftRule = { statements: [{ kind: "verdict", verdict: goto(B) }] };
const TO_ENDPOINTS: NftRule = {
  statements: [
    { kind: "l4proto", protocol: "tcp" },
    {
      kind: "random-dnat",
      targets: [
        { ip: ip("10.180.0.1"), port: 80 },
        { ip: ip("10.180.0.2"), port: 80 },
      ],
    },
  ],
};
const DISPATCH: NftRule = {
  statements: [{ kind: "vmap", fields: ["daddr", "l4proto", "dport"], map: SERVICE_IPS.name }],
};
const REMEMBER: NftRule = { statements: [{ kind: "update", set: AFFINITY.name, field: "saddr" }] };

const frontEnd = (verdict: NftVerdict, address = "10.96.0.1", comment?: string): NftElement => ({
  key: [ip(address), "tcp", 80],
  verdict,
  ...(comment === undefined ? {} : { comment }),
});

const addTable: NftOperation = { kind: "add-table", comment: "rules for kube-proxy" };
const addChain = (name: string, hook?: NftHook): NftOperation => ({
  kind: "add-chain",
  chain: hook === undefined ? { name } : { name, hook },
});
const addRule = (chain: string, rule: NftRule): NftOperation => ({ kind: "add-rule", chain, rule });
const addSet = (set: NftSet): NftOperation => ({ kind: "add-set", set });
const addElements = (set: NftSet, ...elements: NftElement[]): NftOperation => ({ kind: "add-elements", set, elements });
const deleteElements = (set: NftSet, ...elements: NftElement[]): NftOperation => ({
  kind: "delete-elements",
  set,
  keys: elements.map(({ key }) => key),
});
const flushChain = (chain: string): NftOperation => ({ kind: "flush-chain", chain });
const deleteChain = (chain: string): NftOperation => ({ kind: "delete-chain", chain });

/** A table with two chains, every kind of set, and a rule and an element between them. */
const EXAMPLE: readonly NftOperation[] = [
  addTable,
  addSet(CLUSTER_IPS),
  addSet(SERVICE_IPS),
  addSet(NODE_PORTS),
  addSet(HAIRPIN),
  addSet(AFFINITY),
  addChain("nat-prerouting", PREROUTING),
  addChain(A),
  addChain(B),
  addRule("nat-prerouting", DISPATCH),
  addRule(A, REMEMBER),
  addRule(A, TO_ENDPOINTS),
  addElements(CLUSTER_IPS, { key: [ip("10.96.0.1")] }),
  addElements(SERVICE_IPS, frontEnd(goto(A))),
];

/** Operations that are refused on {@link EXAMPLE}; the last of each is the one at fault. */
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
    [addElements(SERVICE_IPS, frontEnd(goto("gone"), "10.96.0.2"))],
  ],
  ["a key that is there with another verdict", ["exists"], [addElements(SERVICE_IPS, frontEnd(goto(B)))]],
  ["a key that is there, for dropping", ["exists"], [addElements(SERVICE_IPS, frontEnd({ kind: "drop" }))]],
  ["deleting a missing element", ["not_found"], [deleteElements(CLUSTER_IPS, { key: [ip("10.96.0.9")] })]],
  [
    "deleting an element twice",
    ["not_found"],
    [deleteElements(SERVICE_IPS, frontEnd(goto(A))), deleteElements(SERVICE_IPS, frontEnd(goto(A)))],
  ],
  ["deleting a chain with rules", ["busy"], [deleteElements(SERVICE_IPS, frontEnd(goto(A))), deleteChain(A)]],
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

async function refusal(work: Promise<unknown>): Promise<NftError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof NftError, String(error));
    return error;
  }
  assert.fail("the transaction was accepted");
}

function elementText({ key, verdict, comment }: NftElement): string {
  return JSON.stringify([elementKey(key), verdict, comment]);
}

/** The content without the generation, in a fixed order. */
async function contentOf(nft: Nftables): Promise<unknown> {
  const content = await nft.read();
  if (content === undefined) return undefined;
  const byName = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]) => (a < b ? -1 : 1);
  return {
    chains: [...content.chains].sort(byName),
    sets: [...content.sets]
      .map(([name, { elements, ...rest }]) => [name, { ...rest, elements: elements.map(elementText).sort() }] as const)
      .sort(byName),
  };
}

async function generationOf(nft: Nftables): Promise<number> {
  return (await nft.read())?.generation ?? assert.fail("there is no table");
}

/** Registers the tests. */
export function nftablesContract({ name, open, skip }: NftablesSubject): void {
  describe(`nftables: ${name}`, { skip }, () => {
    async function example(t: TestContext): Promise<NftablesRig> {
      const rig = await open(t);
      await rig.nft.transact(EXAMPLE);
      return rig;
    }

    /** Starts watching; notifications arrive from when this resolves. */
    async function watched(t: TestContext, { nft, foreign }: NftablesRig) {
      const stop = new AbortController();
      const changes: NftForeignChange[] = [];
      let hasBegun = false;
      const onChange = (change: NftForeignChange): void => {
        hasBegun = true;
        if (!change.chains.has(PROBE)) changes.push(change);
      };
      const watching = nft.watch(onChange, stop.signal);
      t.after(async () => {
        stop.abort();
        await watching;
      });
      const until = async (holds: () => boolean, what: string): Promise<void> => {
        for (const endMs = performance.now() + NOTICE_MS; !holds(); await sleep(1)) {
          assert.ok(performance.now() < endMs, `no notice of ${what}: ${JSON.stringify(changes.map(plain))}`);
        }
      };
      // Watching may take a moment to begin.
      for (const endMs = performance.now() + NOTICE_MS; !hasBegun && performance.now() < endMs; await sleep(1)) {
        await foreign({ kind: "add-rule", chain: PROBE });
      }
      assert.ok(hasBegun, "no notice of anything");
      return { changes, stop, watching, until };
    }

    test("there is nothing to read before there is a table", async (t) => {
      const { nft } = await open(t);
      assert.equal(await nft.read(), undefined);
    });

    test("reads what was committed", async (t) => {
      const { nft } = await example(t);
      const set = (key: NftSet["key"], isMap: boolean, elements: string[] = [], timeoutSeconds?: number) => ({
        key,
        isMap,
        timeoutSeconds,
        elements,
      });
      assert.deepEqual(await contentOf(nft), {
        chains: [
          ["nat-prerouting", { hook: PREROUTING, ruleDigests: [ruleDigest(DISPATCH)] }],
          [A, { hook: undefined, ruleDigests: [REMEMBER, TO_ENDPOINTS].map(ruleDigest) }],
          [B, { hook: undefined, ruleDigests: [] }],
        ],
        sets: [
          [AFFINITY.name, set(["address"], false, [], 10)],
          [CLUSTER_IPS.name, set(["address"], false, [`["10.96.0.1",null,null]`])],
          [HAIRPIN.name, set(HAIRPIN.key, false)],
          [NODE_PORTS.name, set(NODE_PORTS.key, true)],
          [
            SERVICE_IPS.name,
            set(SERVICE_IPS.key, true, [`["10.96.0.1 . tcp . 80",{"kind":"goto","chain":"${A}"},null]`]),
          ],
        ],
      });
    });

    test("reads every kind of key, verdict and comment back", async (t) => {
      const { nft } = await example(t);
      const comment = `ns2/${"s".repeat(63)}:${"p".repeat(63)}`;
      await nft.transact([
        addElements(NODE_PORTS, { key: ["udp", 30053], verdict: { kind: "drop" }, comment }),
        addElements(NODE_PORTS, { key: ["sctp", 65535], verdict: { kind: "jump", chain: A } }),
        addElements(HAIRPIN, { key: [ip("10.180.0.1"), ip("10.180.0.1"), "sctp", 1] }),
      ]);
      const sets = (await nft.read())?.sets;
      const elementsOf = (set: NftSet) => (sets?.get(set.name)?.elements ?? []).map(elementText).sort();
      assert.deepEqual(elementsOf(NODE_PORTS), [
        `["sctp . 65535",{"kind":"jump","chain":"${A}"},null]`,
        `["udp . 30053",{"kind":"drop"},"${comment}"]`,
      ]);
      assert.deepEqual(elementsOf(HAIRPIN), [`["10.180.0.1 . 10.180.0.1 . sctp . 1",null,null]`]);
    });

    test("reads the elements of one set", async (t) => {
      const { nft } = await example(t);
      const another: NftElement = { key: [ip("10.96.0.2"), "udp", 53], verdict: { kind: "drop" }, comment: "ns/dns" };
      await nft.transact([addElements(SERVICE_IPS, another)]);
      const elements = await nft.readElements(SERVICE_IPS);
      assert.deepEqual(elements?.map(elementText).sort(), [frontEnd(goto(A)), another].map(elementText).sort());
      assert.deepEqual(await nft.readElements(NODE_PORTS), []);
      assert.equal(await nft.readElements({ ...NODE_PORTS, name: "gone" }), undefined);
      await nft.transact([{ kind: "delete-table" }]);
      assert.equal(await nft.readElements(NODE_PORTS), undefined);
    });

    test("what exists may be added again", async (t) => {
      const { nft } = await example(t);
      const before = await contentOf(nft);
      await nft.transact(EXAMPLE.filter(({ kind }) => kind !== "add-rule"));
      assert.deepEqual(await contentOf(nft), before);
    });

    test("a comment is no part of an element's identity", async (t) => {
      const { nft } = await example(t);
      const before = await contentOf(nft);
      await nft.transact([addElements(SERVICE_IPS, frontEnd(goto(A), "10.96.0.1", "another comment"))]);
      assert.deepEqual(await contentOf(nft), before);
    });

    test("a base chain gets its policy by being added again", async (t) => {
      const { nft, foreign } = await example(t);
      const before = await contentOf(nft);
      const hook: NftHook = { ...PREROUTING, policy: "drop" };
      await foreign({ kind: "drop-policy", chain: "nat-prerouting", hook: PREROUTING });
      assert.deepEqual((await nft.read())?.chains.get("nat-prerouting")?.hook, hook);
      await nft.transact([addChain("nat-prerouting", PREROUTING)]);
      assert.deepEqual(await contentOf(nft), before);
      await nft.transact([addChain("nat-prerouting", hook)]);
      assert.deepEqual((await nft.read())?.chains.get("nat-prerouting")?.hook, hook);
    });

    test("a table that was switched off is switched on by being added again", async (t) => {
      const { nft, foreign } = await example(t);
      await foreign({ kind: "switch-off" });
      assert.equal((await nft.read())?.isDormant, true);
      await nft.transact([addChain("x"), addChain("late", { ...PREROUTING, priority: 7 })]);
      await nft.transact([addTable]);
      const content = await nft.read();
      assert.deepEqual([content?.isDormant, content?.hasOtherFlags], [false, false]);
      assert.deepEqual(content?.chains.get("nat-prerouting")?.hook, PREROUTING);
    });

    test("an element that catches all keys is read and deleted as one without a key", async (t) => {
      const { nft, foreign } = await example(t);
      const before = await contentOf(nft);
      const all: NftElement = { key: [], verdict: { kind: "drop" } };
      await foreign({ kind: "add-element", set: SERVICE_IPS, key: [] });
      const elements = await nft.readElements(SERVICE_IPS);
      assert.deepEqual(elements?.map(elementText).sort(), [all, frontEnd(goto(A))].map(elementText).sort());
      await nft.transact([deleteElements(SERVICE_IPS, all)]);
      assert.deepEqual(await contentOf(nft), before);
      await nft.transact([addElements(NODE_PORTS, all)]);
      assert.deepEqual((await nft.readElements(NODE_PORTS))?.map(elementText), [elementText(all)]);
    });

    test("an element gets another verdict by deleting it first", async (t) => {
      const { nft } = await example(t);
      const element = frontEnd(goto(B), "10.96.0.1", "moved");
      await nft.transact([deleteElements(SERVICE_IPS, element), addElements(SERVICE_IPS, element)]);
      const elements = (await nft.read())?.sets.get(SERVICE_IPS.name)?.elements;
      assert.deepEqual(elements?.map(elementText), [elementText(element)]);
    });

    test("a set is given another timeout in place", async (t) => {
      const { nft } = await example(t);
      await nft.transact([addSet({ ...AFFINITY, timeoutSeconds: 86_400 })]);
      assert.equal((await nft.read())?.sets.get(AFFINITY.name)?.timeoutSeconds, 86_400);
    });

    test("a chain is deleted with everything that goes to it in one transaction", async (t) => {
      const { nft } = await example(t);
      await nft.transact([
        deleteElements(SERVICE_IPS, frontEnd(goto(A))),
        flushChain(A),
        deleteChain(A),
        { kind: "delete-set", set: AFFINITY.name },
      ]);
      const content = await nft.read();
      assert.deepEqual([...(content?.chains.keys() ?? [])].sort(), ["nat-prerouting", B]);
      assert.equal(content?.sets.has(AFFINITY.name), false);
    });

    test("a flushed chain keeps what goes to it, and is written again", async (t) => {
      const { nft } = await example(t);
      await nft.transact([flushChain(A), addRule(A, DROP)]);
      assert.deepEqual((await nft.read())?.chains.get(A)?.ruleDigests, [ruleDigest(DROP)]);
    });

    test("a flushed map is empty, and lets go of the chains", async (t) => {
      const { nft } = await example(t);
      await nft.transact([{ kind: "flush-set", set: SERVICE_IPS }, flushChain(A), deleteChain(A)]);
      assert.deepEqual((await nft.read())?.sets.get(SERVICE_IPS.name)?.elements, []);
    });

    test("a table is deleted with all that is in it", async (t) => {
      const { nft } = await example(t);
      await nft.transact([{ kind: "delete-table" }]);
      assert.equal(await nft.read(), undefined);
    });

    test("a table is replaced in one transaction", async (t) => {
      const { nft } = await example(t);
      await nft.transact([
        { kind: "delete-table" },
        addTable,
        addChain("nat-prerouting", { ...PREROUTING, hook: "output", priority: 3 }),
      ]);
      const content = await nft.read();
      assert.deepEqual(
        [...(content?.chains ?? [])],
        [["nat-prerouting", { hook: { type: "nat", hook: "output", priority: 3 }, ruleDigests: [] }]],
      );
      assert.equal(content?.sets.size, 0);
    });

    for (const [what, codes, operations] of REFUSED) {
      test(`refuses ${what}, and nothing of the transaction stays`, async (t) => {
        const { nft } = await example(t);
        const before = await contentOf(nft);
        const harmless = [addChain("new"), addElements(CLUSTER_IPS, { key: [ip("10.96.0.77")] })];
        const error = await refusal(nft.transact([...harmless, ...operations]));
        assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
        assert.equal(error.operation, harmless.length + operations.length - 1, error.message);
        assert.deepEqual(await contentOf(nft), before);
      });
    }

    test("without a table everything but adding it is refused", async (t) => {
      const { nft } = await open(t);
      for (const operation of [addChain(A), addSet(CLUSTER_IPS), { kind: "delete-table" } as const]) {
        const { code, operation: index } = await refusal(nft.transact([operation]));
        assert.deepEqual([code, index], ["not_found", 0]);
      }
    });

    test("every transaction begins another generation", async (t) => {
      const { nft } = await example(t);
      const first = await generationOf(nft);
      assert.equal(await generationOf(nft), first);
      await nft.transact([addChain("x")]);
      assert.notEqual(await generationOf(nft), first);
    });

    test("a refused transaction, or one of nothing, leaves the generation", async (t) => {
      const { nft } = await example(t);
      const generation = await generationOf(nft);
      await refusal(nft.transact([deleteChain("gone")]));
      await nft.transact([]);
      assert.equal(await generationOf(nft), generation);
      await nft.transact([addChain("x")], { generation });
    });

    test("refuses a transaction that was made for an older generation", async (t) => {
      const { nft, foreign } = await example(t);
      const generation = await generationOf(nft);
      await foreign({ kind: "add-rule", chain: A });
      const before = await contentOf(nft);
      const error = await refusal(nft.transact([addChain("x")], { generation }));
      assert.deepEqual([error.code, error.operation], ["conflict", undefined]);
      assert.deepEqual(await contentOf(nft), before);
      await nft.transact([addChain("x")], { generation: await generationOf(nft) });
    });

    test("rules of another program have no digest", async (t) => {
      const { nft, foreign } = await example(t);
      await foreign({ kind: "add-rule", chain: A });
      const expected = [ruleDigest(REMEMBER), ruleDigest(TO_ENDPOINTS), undefined];
      assert.deepEqual((await nft.read())?.chains.get(A)?.ruleDigests, expected);
    });

    test("a jump of another program's keeps a chain from being deleted", async (t) => {
      const { nft, foreign } = await example(t);
      await foreign({ kind: "add-jump", chain: "theirs", to: B });
      const error = await refusal(nft.transact([deleteChain(B)]));
      assert.deepEqual([error.code, error.operation], ["busy", 0]);
    });

    test("tells what others change, and who", async (t) => {
      const rig = await example(t);
      const { changes, until } = await watched(t, rig);
      const hasChain = (chain: string) => () => changes.some(({ chains }) => chains.has(chain));
      const hasSet = (set: NftSet) => () => changes.some(({ sets }) => sets.has(set.name));
      await rig.foreign({ kind: "flush-chain", chain: A });
      await until(hasChain(A), "a flushed chain");
      await rig.foreign({ kind: "delete-chain", chain: B });
      await until(hasChain(B), "a deleted chain");
      await rig.foreign({ kind: "delete-element", set: CLUSTER_IPS, key: [ip("10.96.0.1")] });
      await until(hasSet(CLUSTER_IPS), "a deleted element");
      await rig.foreign({ kind: "add-element", set: NODE_PORTS, key: ["tcp", 30000] });
      await until(hasSet(NODE_PORTS), "an added element");
      await rig.foreign({ kind: "delete-set", set: HAIRPIN });
      await until(hasSet(HAIRPIN), "a deleted set");
      for (const change of changes) {
        assert.equal(change.isTotal, false);
        assert.ok((change.by?.pid ?? 0) > 0);
        assert.equal(change.by?.name, "nft");
        assert.deepEqual([...change.defined], []);
      }
    });

    test("tells chains and sets that may be of another kind from those whose content changed", async (t) => {
      const rig = await example(t);
      const { changes, until } = await watched(t, rig);
      await rig.foreign({ kind: "drop-policy", chain: "nat-prerouting", hook: PREROUTING });
      await until(() => changes.some(({ defined }) => defined.has("nat-prerouting")), "a policy");
      await rig.foreign({ kind: "switch-off" });
      await until(() => changes.some(({ isTotal }) => isTotal), "a table that is switched off");
    });

    test("tells that the table is gone", async (t) => {
      const rig = await example(t);
      const { changes, until } = await watched(t, rig);
      await rig.foreign({ kind: "delete-table" });
      await until(() => changes.some(({ isTotal }) => isTotal), "a deleted table");
    });

    test("says nothing of what this program changes", async (t) => {
      const rig = await example(t);
      const { changes, until } = await watched(t, rig);
      await rig.nft.transact([flushChain(A), addRule(A, DROP), addChain("x"), addElements(NODE_PORTS, NODE_PORT_DROP)]);
      await rig.foreign({ kind: "add-rule", chain: B });
      await until(() => changes.length > 0, "a foreign rule");
      assert.deepEqual(
        changes.flatMap(({ chains, sets }) => [...chains, ...sets]),
        [B],
      );
    });

    test("stops watching when it is told to", async (t) => {
      const rig = await example(t);
      const { changes, stop, watching } = await watched(t, rig);
      stop.abort();
      await watching;
      await rig.foreign({ kind: "flush-chain", chain: A });
      await rig.nft.read();
      assert.deepEqual(changes, []);
      await rig.nft.watch(() => assert.fail("told of a change"), AbortSignal.abort());
    });
  });
}

const NODE_PORT_DROP: NftElement = { key: ["tcp", 1], verdict: { kind: "drop" } };

function plain({ chains, sets, isTotal, by }: NftForeignChange): unknown {
  return { chains: [...chains], sets: [...sets], isTotal, by };
}
