import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftElement, NftSet } from "../../kernel/nftables/ruleset.ts";
import { TransactionDraft } from "./draft.ts";
import { operationText } from "./testing/backend-rig.ts";

const MAP: NftSet = { name: "ports", key: ["port"], isMap: true };
const SET: NftSet = { name: "affinity-x", key: ["address"], isMap: false, timeoutSeconds: 1 };
const at = (port: number, chain: string): NftElement => ({ key: [port], verdict: { kind: "goto", chain } });
const RULE = { statements: [{ kind: "reject" }] } as const;

function texts(draft: TransactionDraft): string[] {
  return Array.from(draft.operations(), operationText);
}

test("what is referred to comes first and goes last, in any order of the steps", () => {
  const draft = new TransactionDraft();
  draft.deleteSet("affinity-old");
  draft.deleteChain("old");
  draft.emptyChain("old");
  draft.changeElement(MAP, { set: MAP.name, before: undefined, after: at(1, "new") });
  draft.changeElement(MAP, { set: MAP.name, before: at(2, "old"), after: undefined });
  draft.writeChain({ name: "new", rules: [RULE] }, "absent");
  draft.add("add-sets", { kind: "add-set", set: SET });
  draft.add("table", { kind: "add-table", comment: "" });
  assert.deepEqual(texts(draft), [
    "add-table",
    "add-set affinity-x",
    "add-chain new",
    "add-rule new",
    "delete-elements ports 2",
    "add-elements ports 1",
    "flush-chain old",
    "delete-chain old",
    "delete-set affinity-old",
  ]);
});

test("a chain is written at the least cost for what is known of it", () => {
  const expected = {
    absent: ["add-chain a", "add-rule a"],
    empty: ["add-rule a"],
    filled: ["flush-chain a", "add-rule a"],
    unknown: ["add-chain a", "flush-chain a", "add-rule a"],
  } as const;
  for (const presence of ["absent", "empty", "filled", "unknown"] as const) {
    const draft = new TransactionDraft();
    draft.writeChain({ name: "a", rules: [RULE] }, presence);
    assert.deepEqual(texts(draft), expected[presence]);
  }
});

test("a key is deleted once though it changes hands within the draft", () => {
  const draft = new TransactionDraft();
  const change = (before: NftElement | undefined, after: NftElement | undefined, owner: string) =>
    draft.changeElement(MAP, { set: MAP.name, before, after }, owner);
  change(at(1, "a"), at(1, "b"), "a");
  change(at(1, "b"), undefined, "b");
  change(at(2, "a"), at(2, "b"), "a");
  change(at(2, "b"), at(2, "a"), "b");
  change(at(3, "a"), at(3, "b"), "a");
  assert.deepEqual(texts(draft), ["delete-elements ports 1", "delete-elements ports 3", "add-elements ports 3"]);
});

test("changes that cancel each other out leave an empty draft", () => {
  const draft = new TransactionDraft();
  assert.equal(draft.isEmpty, true);
  draft.changeElement(MAP, { set: MAP.name, before: undefined, after: at(1, "a") });
  assert.equal(draft.isEmpty, false);
  draft.changeElement(MAP, { set: MAP.name, before: at(1, "a"), after: undefined });
  assert.equal(draft.isEmpty, true);
});

test("every operation is known by its owner", () => {
  const draft = new TransactionDraft();
  draft.changeElement(MAP, { set: MAP.name, before: undefined, after: at(1, "a") }, "a");
  draft.changeElement(MAP, { set: MAP.name, before: undefined, after: at(2, "b") }, "b");
  draft.writeChain({ name: "b", rules: [RULE] }, "absent", "b");
  draft.add("table", { kind: "add-table", comment: "" });
  const owners = Array.from(draft.operations(), (_, index) => draft.ownerOf(index));
  assert.deepEqual(owners, [undefined, "b", "b", "a", "b"]);
  assert.deepEqual(draft.owners(), new Set(["a", "b"]));
  assert.equal(draft.ownerOf(99), undefined);
});

test("deletions can be withheld; the chains are emptied nevertheless, and shared sets that are free go", () => {
  const draft = new TransactionDraft();
  draft.emptyChain("old");
  draft.deleteSharedSet("shared");
  draft.deleteChain("old");
  draft.deleteSet("affinity-old");
  assert.equal(draft.withholdDeletions(0), undefined);
  assert.deepEqual(draft.withholdDeletions(2)?.map(operationText), ["delete-chain old", "delete-set affinity-old"]);
  assert.deepEqual(texts(draft), ["flush-chain old", "delete-set shared"]);
  assert.deepEqual(draft.withholdDeletions(1)?.map(operationText), ["delete-set shared"]);
  assert.deepEqual(texts(draft), ["flush-chain old"]);
});

test("operations are made when they are asked for, not before", () => {
  const draft = new TransactionDraft();
  let read = 0;
  for (let port = 1; port <= 1000; port += 1) {
    const before: NftElement = {
      get key() {
        read += 1;
        return [port];
      },
    };
    draft.changeElement(MAP, { set: MAP.name, before, after: undefined }, `owner-${port}`);
  }
  read = 0;
  const [first] = draft.operations();
  assert.ok(first !== undefined);
  assert.ok(read <= 2, `${read} of 1000 elements were looked at for the first operation`);
});

const MAPS = new Map([[MAP.name, MAP]]);

test("what one owner gives up and another gets is one change, whichever is told first", () => {
  const before = at(80, "x");
  const after = at(80, "y");
  const given = { set: MAP.name, before, after: undefined };
  const got = { set: MAP.name, before: undefined, after };
  for (const changes of [
    [given, got],
    [got, given],
  ]) {
    const draft = new TransactionDraft();
    for (const change of changes) draft.changeElement(MAP, change, "owner");
    assert.deepEqual(
      [...draft.operations()],
      [
        { kind: "delete-elements", set: MAP, keys: [before.key] },
        { kind: "add-elements", set: MAP, elements: [after] },
      ],
    );
  }
});

test("a set that is filled has its elements made when the draft is read, together for neighbours of one owner", () => {
  const draft = new TransactionDraft();
  draft.fillSets(MAPS, () => []);
  assert.equal(draft.isEmpty, true);
  const element = (port: number) => at(port, "x");
  let asked = 0;
  function* wanted() {
    asked += 1;
    yield { set: MAP.name, owner: "", element: element(1) };
    yield { set: MAP.name, owner: "a", element: element(2) };
    yield { set: MAP.name, owner: "a", element: element(3) };
    yield { set: MAP.name, owner: "b", element: element(4) };
  }
  draft.fillSets(MAPS, wanted);
  assert.equal(draft.isEmpty, false);
  const before = asked;
  const added = (): readonly (readonly NftElement[])[] =>
    [...draft.operations()].map((operation) =>
      operation.kind === "add-elements" ? operation.elements : assert.fail(),
    );
  const expected = [[element(1)], [element(2), element(3)], [element(4)]];
  assert.deepEqual(added(), expected);
  assert.deepEqual(added(), expected);
  assert.equal(asked, before + 2);
  assert.deepEqual([...draft.owners()], ["a", "b"]);
  assert.equal(draft.ownerOf(0), undefined);
  assert.throws(
    () => draft.changeElement(MAP, { set: MAP.name, before: undefined, after: element(5) }),
    /filled already/,
  );
});
