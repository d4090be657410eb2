import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftElement } from "../../kernel/nftables/ruleset.ts";
import { ip } from "../../model/testing/records.ts";
import { ElementOwners } from "./element-owners.ts";
import type { SharedElement } from "./table-plan.ts";

const KEY = [ip("198.51.100.1"), "tcp" as const, 80];

function goingTo(chain: string, comment?: string): SharedElement {
  const verdict = { kind: "goto", chain } as const;
  const element: NftElement = comment === undefined ? { key: KEY, verdict } : { key: KEY, verdict, comment };
  return { set: "service-ips", element };
}

const ADDRESS: SharedElement = { set: "cluster-ips", element: { key: [ip("10.96.0.1")] } };

function wanted(owners: ElementOwners, set: string): (readonly [string, NftElement])[] {
  return Array.from(owners.wanted(set), ({ owner, element }) => [owner, element]);
}

test("the first claim of a key adds the element, the last one removed deletes it", () => {
  const owners = new ElementOwners();
  assert.deepEqual(owners.replace("a", [], [ADDRESS]), [
    { set: "cluster-ips", before: undefined, after: ADDRESS.element },
  ]);
  assert.deepEqual(owners.replace("b", [], [ADDRESS]), []);
  assert.deepEqual(owners.replace("a", [ADDRESS], []), []);
  assert.deepEqual(owners.replace("b", [ADDRESS], []), [
    { set: "cluster-ips", before: ADDRESS.element, after: undefined },
  ]);
  assert.deepEqual(wanted(owners, "cluster-ips"), []);
});

test("the first claimant by name decides the verdict, in any order of owners", () => {
  for (const order of [
    ["a", "b", "c"],
    ["c", "b", "a"],
    ["b", "c", "a"],
  ]) {
    const owners = new ElementOwners();
    for (const owner of order) owners.replace(owner, [], [goingTo(owner)]);
    assert.deepEqual(wanted(owners, "service-ips"), [["a", goingTo("a").element]]);
  }
});

test("the next claimant by name takes over from one that gives up", () => {
  const owners = new ElementOwners();
  for (const owner of ["c", "a", "b"]) owners.replace(owner, [], [goingTo(owner)]);
  assert.deepEqual(owners.replace("a", [goingTo("a")], []), [
    { set: "service-ips", before: goingTo("a").element, after: goingTo("b").element },
  ]);
  assert.deepEqual(owners.replace("c", [goingTo("c")], []), []);
  assert.equal(owners.ownerAt("service-ips", KEY.join(" . ")), "b");
});

test("a claim that stays the same changes nothing", () => {
  const owners = new ElementOwners();
  owners.replace("a", [], [goingTo("x"), ADDRESS]);
  assert.deepEqual(owners.replace("a", [goingTo("x"), ADDRESS], [ADDRESS, goingTo("x")]), []);
});

test("another verdict, or another comment, is a change", () => {
  const owners = new ElementOwners();
  owners.replace("a", [], [goingTo("x")]);
  const [change] = owners.replace("a", [goingTo("x")], [goingTo("y")]);
  assert.deepEqual(change, { set: "service-ips", before: goingTo("x").element, after: goingTo("y").element });
  assert.equal(owners.replace("a", [goingTo("y")], [goingTo("y", "ns/a:p")]).length, 1);
});

test("of two owners of one owner for one key, the later counts, and both go together", () => {
  const owners = new ElementOwners();
  const both = [goingTo("x"), goingTo("y")];
  owners.replace("a", [], both);
  assert.deepEqual(wanted(owners, "service-ips"), [["a", goingTo("y").element]]);
  assert.equal(owners.replace("a", both, []).length, 1);
  assert.deepEqual(wanted(owners, "service-ips"), []);
});
