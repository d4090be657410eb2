/** Which service port decides the value at a key that several want. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { KeyOwners } from "./key-owners.ts";

test("precedence decides, then the name, in any order of events; of an owner's values the last counts", () => {
  const owners = new KeyOwners<number>((a, b) => a - b);
  const wants = (owner: string, ...values: readonly number[]) =>
    owners.replace(
      owner,
      [],
      values.map((value) => ["key", value]),
    );
  wants("c", 1);
  wants("b", 2);
  wants("a", 2);
  wants("d", 9, 1);
  assert.deepEqual(owners.ownersOf("key"), ["c", "d", "a", "b"]);
  assert.deepEqual(owners.effective("key"), { owner: "c", value: 1 });
  owners.track();
  owners.replace("c", [["key", 1]], [["key", 3]]);
  owners.replace("d", [["key", 1]], []);
  assert.deepEqual(owners.ownersOf("key"), ["a", "b", "c"]);
  assert.deepEqual([...owners.touched], [["key", 1]]);
  for (const owner of ["a", "b"]) owners.replace(owner, [["key", 2]], []);
  assert.deepEqual([...owners.entries()], [["key", { owner: "c", value: 3 }]]);
  owners.replace("c", [["key", 3]], []);
  assert.deepEqual([owners.has("key"), owners.size], [false, 0]);
});

test("thousands of service ports with one address are not compared with one another", () => {
  const names = Array.from({ length: 3_000 }, (_, index) => `ns/many:p${index}/TCP`);
  let comparisons = 0;
  const owners = new KeyOwners<string>(() => {
    comparisons += 1;
    return 0;
  });
  for (const name of names) owners.replace(name, [], [["10.96.0.1", name]]);
  assert.equal(owners.effective("10.96.0.1")?.owner, names.toSorted()[0]);
  for (const name of names) owners.replace(name, [["10.96.0.1", name]], []);
  assert.equal(owners.size, 0);
  assert.ok(comparisons < 100 * names.length, `${comparisons} comparisons`);
});
