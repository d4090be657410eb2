/** The contract of {@link Nftables}, for the kernel's (in the test's own namespace) and the one in memory. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { NftOperation } from "../nftables.ts";
import { ruleDigest } from "../rule-digest.ts";
import type { NftElement, NftHook, NftSet, NftStatement } from "../ruleset.ts";
import {
  A,
  AFFINITY,
  addChain,
  addElements,
  addRule,
  addSet,
  addTable,
  B,
  CLUSTER_IPS,
  contentOf,
  DISPATCH,
  DROP,
  deleteChain,
  deleteElements,
  EXAMPLE,
  elementText,
  flushChain,
  frontend,
  generationOf,
  goto,
  HAIRPIN,
  ip,
  NODE_PORTS,
  openExample,
  PREROUTING,
  REMEMBER,
  SERVICE_IPS,
  TO_ENDPOINTS,
} from "./nftables-example.ts";
import { nftablesRefusals } from "./nftables-refusals-contract.ts";
import type { NftablesSubject } from "./nftables-subject.ts";
import { nftablesWatch } from "./nftables-watch-contract.ts";

export function nftablesContract(subject: NftablesSubject): void {
  describe(`nftables: ${subject.name}`, { skip: subject.skip }, () => {
    nftablesContent(subject);
    nftablesRefusals(subject);
    nftablesWatch(subject);
  });
}

/** Reading, and how transactions change the content. */
function nftablesContent(subject: NftablesSubject): void {
  test("there is nothing to read before there is a table", async (t) => {
    const { nft } = await subject.open(t);
    assert.equal(await nft.read(), undefined);
    await nft.transact([{ kind: "add-table", comment: "a test's" }]);
    assert.notEqual(await nft.read(), undefined);
  });

  test("says whether only this process has touched the table since a mark", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    const before = await nft.mark();
    assert.equal(await nft.generationIfUntouched(before), before.generation);
    await nft.transact([addChain("one"), addChain("two")]);
    await nft.transact([deleteChain("two")]);
    const own = await nft.generationIfUntouched(before);
    assert.equal(own, await generationOf(nft));
    await nft.transact([addChain("three")], { generation: own ?? assert.fail() });
    const after = await nft.mark();
    await foreign({ kind: "add-rule", chain: "one" });
    assert.equal(await nft.generationIfUntouched(before), undefined);
    assert.equal(await nft.generationIfUntouched(after), undefined);
    await nft.transact([deleteChain("three")]);
    assert.equal(await nft.generationIfUntouched(after), undefined);
  });

  test("reads what was committed", async (t) => {
    const { nft } = await openExample(subject, t);
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
    const { nft } = await openExample(subject, t);
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
    const { nft } = await openExample(subject, t);
    const another: NftElement = { key: [ip("10.96.0.2"), "udp", 53], verdict: { kind: "drop" }, comment: "ns/dns" };
    await nft.transact([addElements(SERVICE_IPS, another)]);
    const elements = await nft.readElements(SERVICE_IPS);
    assert.deepEqual(elements?.map(elementText).sort(), [frontend(goto(A)), another].map(elementText).sort());
    assert.deepEqual(await nft.readElements(NODE_PORTS), []);
    assert.equal(await nft.readElements({ ...NODE_PORTS, name: "gone" }), undefined);
    await nft.transact([{ kind: "delete-table" }]);
    assert.equal(await nft.readElements(NODE_PORTS), undefined);
  });

  test("finds the sets with an element that catches all keys, also sets that packets fill", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    const gone = { ...AFFINITY, name: "gone" };
    assert.deepEqual(await nft.withCatchAll([AFFINITY, SERVICE_IPS, gone]), []);
    await foreign({ kind: "add-element", set: AFFINITY, key: [] });
    assert.deepEqual(await nft.withCatchAll([SERVICE_IPS, AFFINITY, gone]), [AFFINITY]);
    await nft.transact([{ kind: "delete-elements", set: AFFINITY, keys: [[]] }]);
    assert.deepEqual(await nft.withCatchAll([AFFINITY]), []);
  });

  test("reads where the rules of chains translate destinations to", async (t) => {
    const { nft } = await openExample(subject, t);
    const [one, two] = [
      { ip: ip("10.180.0.1"), port: 8080 },
      { ip: ip("10.180.0.2"), port: 9090 },
    ];
    const add = (chain: string, ...statements: NftStatement[]): NftOperation[] => [
      { kind: "add-chain", chain: { name: chain } },
      { kind: "add-rule", chain, rule: { statements } },
    ];
    const tcp: NftStatement = { kind: "l4proto", protocol: "tcp" };
    await nft.transact([
      ...add("single", tcp, { kind: "dnat", to: one }),
      ...add("several", tcp, { kind: "random-dnat", targets: [one, two] }),
      ...add("none", { kind: "verdict", verdict: { kind: "drop" } }),
    ]);
    const targets = await nft.readTargets(["single", "several", "none", "gone"]);
    const ports = Array.from(targets, ([chain, list]) => [chain, list.map(({ port }) => port).sort()]);
    assert.deepEqual(ports, [
      ["single", [8080]],
      ["several", [8080, 9090]],
    ]);
    assert.deepEqual(targets.get("single"), [one]);
  });

  test("what exists may be added again", async (t) => {
    const { nft } = await openExample(subject, t);
    const before = await contentOf(nft);
    await nft.transact(EXAMPLE.filter(({ kind }) => kind !== "add-rule"));
    assert.deepEqual(await contentOf(nft), before);
  });

  test("a comment is no part of an element's identity", async (t) => {
    const { nft } = await openExample(subject, t);
    const before = await contentOf(nft);
    await nft.transact([addElements(SERVICE_IPS, frontend(goto(A), "10.96.0.1", "another comment"))]);
    assert.deepEqual(await contentOf(nft), before);
  });

  test("a base chain gets its policy by being added again", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
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
    const { nft, foreign } = await openExample(subject, t);
    await foreign({ kind: "switch-off" });
    assert.equal((await nft.read())?.isDormant, true);
    await nft.transact([addChain("x"), addChain("late", { ...PREROUTING, priority: 7 })]);
    await nft.transact([addTable]);
    const content = await nft.read();
    assert.deepEqual([content?.isDormant, content?.hasOtherFlags], [false, false]);
    assert.deepEqual(content?.chains.get("nat-prerouting")?.hook, PREROUTING);
  });

  test("an element that catches all keys is read and deleted as one without a key", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    const before = await contentOf(nft);
    const all: NftElement = { key: [], verdict: { kind: "drop" } };
    await foreign({ kind: "add-element", set: SERVICE_IPS, key: [] });
    const elements = await nft.readElements(SERVICE_IPS);
    assert.deepEqual(elements?.map(elementText).sort(), [all, frontend(goto(A))].map(elementText).sort());
    await nft.transact([deleteElements(SERVICE_IPS, all)]);
    assert.deepEqual(await contentOf(nft), before);
    await nft.transact([addElements(NODE_PORTS, all)]);
    assert.deepEqual((await nft.readElements(NODE_PORTS))?.map(elementText), [elementText(all)]);
  });

  test("an element gets another verdict by deleting it first", async (t) => {
    const { nft } = await openExample(subject, t);
    const element = frontend(goto(B), "10.96.0.1", "moved");
    await nft.transact([deleteElements(SERVICE_IPS, element), addElements(SERVICE_IPS, element)]);
    const elements = (await nft.read())?.sets.get(SERVICE_IPS.name)?.elements;
    assert.deepEqual(elements?.map(elementText), [elementText(element)]);
  });

  test("a set is given another timeout in place", async (t) => {
    const { nft } = await openExample(subject, t);
    await nft.transact([addSet({ ...AFFINITY, timeoutSeconds: 86_400 })]);
    assert.equal((await nft.read())?.sets.get(AFFINITY.name)?.timeoutSeconds, 86_400);
  });

  test("a chain is deleted with everything that goes to it in one transaction", async (t) => {
    const { nft } = await openExample(subject, t);
    await nft.transact([
      deleteElements(SERVICE_IPS, frontend(goto(A))),
      flushChain(A),
      deleteChain(A),
      { kind: "delete-set", set: AFFINITY.name },
    ]);
    const content = await nft.read();
    assert.deepEqual([...(content?.chains.keys() ?? [])].sort(), ["nat-prerouting", B]);
    assert.equal(content?.sets.has(AFFINITY.name), false);
  });

  test("a flushed chain keeps what goes to it, and is written again", async (t) => {
    const { nft } = await openExample(subject, t);
    await nft.transact([flushChain(A), addRule(A, DROP)]);
    assert.deepEqual((await nft.read())?.chains.get(A)?.ruleDigests, [ruleDigest(DROP)]);
  });

  test("a flushed map is empty, and lets go of the chains", async (t) => {
    const { nft } = await openExample(subject, t);
    await nft.transact([{ kind: "flush-set", set: SERVICE_IPS }, flushChain(A), deleteChain(A)]);
    assert.deepEqual((await nft.read())?.sets.get(SERVICE_IPS.name)?.elements, []);
  });

  test("a table is deleted with all that is in it", async (t) => {
    const { nft } = await openExample(subject, t);
    await nft.transact([{ kind: "delete-table" }]);
    assert.equal(await nft.read(), undefined);
  });

  test("a table is replaced in one transaction", async (t) => {
    const { nft } = await openExample(subject, t);
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

  test("what goes to a chain is read with the name that the chain has now", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    await nft.transact([addChain("x"), addRule("x", { statements: [{ kind: "verdict", verdict: goto(A) }] })]);
    assert.deepEqual((await nft.read())?.chains.get("x")?.targets, [A]);
    await foreign({ kind: "rename-chain", chain: A, to: "y" });
    const content = await nft.read();
    assert.deepEqual(content?.chains.get("x")?.targets, ["y"]);
    assert.equal(content?.chains.get("x")?.ruleDigests.length, 1);
    assert.equal(content?.chains.has(A), false);
    const verdicts = content?.sets.get(SERVICE_IPS.name)?.elements.map(({ verdict }) => verdict);
    assert.deepEqual(verdicts, [goto("y")]);
  });

  test("rules of another program have no digest", async (t) => {
    const { nft, foreign } = await openExample(subject, t);
    await foreign({ kind: "add-rule", chain: A });
    const expected = [ruleDigest(REMEMBER), ruleDigest(TO_ENDPOINTS), undefined];
    assert.deepEqual((await nft.read())?.chains.get(A)?.ruleDigests, expected);
  });
}
