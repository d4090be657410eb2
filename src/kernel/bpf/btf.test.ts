import assert from "node:assert/strict";
import { test } from "node:test";
import { functionTypes } from "./btf.ts";
import { btf } from "./testing/made-btf.ts";

/** How many words follow a record, by its kind (reference ebpf-programs.md §4.7). */
const KINDS: readonly (readonly [kind: number, parts: number, tail: number])[] = [
  [1, 0, 1],
  [2, 0, 0],
  [3, 0, 3],
  [4, 2, 6],
  [5, 3, 9],
  [6, 4, 8],
  [7, 0, 0],
  [8, 0, 0],
  [9, 0, 0],
  [10, 0, 0],
  [11, 0, 0],
  [13, 3, 6],
  [14, 0, 1],
  [15, 2, 6],
  [16, 0, 0],
  [17, 0, 1],
  [18, 0, 0],
  [19, 2, 6],
];

test("a function has the number of its type, behind types of every kind", () => {
  const before = KINDS.map(([kind, parts, tail]) => ({ kind, parts, tail }));
  const types = btf([
    ...before,
    { kind: 1, name: "call", tail: 1 },
    { kind: 12, name: "call" },
    { kind: 12, name: "b" },
  ]);
  const { ids, nextId } = functionTypes(types, ["call", "b", "this_call", "absent"]);
  assert.deepEqual(
    [...ids],
    [
      ["call", KINDS.length + 2],
      ["b", KINDS.length + 3],
    ],
  );
  assert.equal(nextId, KINDS.length + 4);
});

test("types of a module go on where the kernel's end, with their numbers and with their strings", () => {
  const names = ["inside", "first", "second", "shared"] as const;
  const own = functionTypes(
    btf([
      { kind: 12, name: "inside" },
      { kind: 4, name: "shared", parts: 2, tail: 6 },
    ]),
    names,
  );
  assert.deepEqual([[...own.ids], own.nextId], [[["inside", 1]], 3]);
  // Its strings are those that the kernel does not have; the first of them has no empty one before it.
  const module = btf(
    [{ kind: 12, name: "first" }, { kind: 8 }, { kind: 12, name: "shared" }, { kind: 12, name: "second" }],
    own,
  );
  const found = functionTypes(module, names, own);
  assert.deepEqual(
    [...found.ids],
    [
      ["first", 3],
      ["shared", 5],
      ["second", 6],
    ],
  );
  assert.deepEqual([...functionTypes(module, names).ids], [], "nothing is found without what they go on from");
});

test("what is no BTF is refused", () => {
  assert.throws(() => functionTypes(Buffer.from("nothing of the kind, at all"), ["a"]), /not a BTF/);
  assert.throws(() => functionTypes(btf([{ kind: 12, name: "a" }]).subarray(0, 30), ["a"]), /ends too early/);
});
