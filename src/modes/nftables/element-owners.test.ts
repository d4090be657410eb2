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

function replace(owners: ElementOwners, owner: string, before: SharedElement[], after: SharedElement[]) {
  return owners.replace(owner, { elements: before }, { elements: after });
}

const ownerOf = (owners: ElementOwners, { set, element }: SharedElement): string | undefined =>
  owners.ownerAt(set, element.key.join(" . "));

test("the first claim of a key adds the element, the last one removed deletes it", () => {
  const owners = new ElementOwners();
  assert.deepEqual(replace(owners, "a", [], [ADDRESS]), [
    { set: "cluster-ips", before: undefined, after: ADDRESS.element },
  ]);
  assert.deepEqual(replace(owners, "b", [], [ADDRESS]), []);
  assert.deepEqual(replace(owners, "a", [ADDRESS], []), []);
  assert.deepEqual(replace(owners, "b", [ADDRESS], []), [
    { set: "cluster-ips", before: ADDRESS.element, after: undefined },
  ]);
  assert.equal(ownerOf(owners, ADDRESS), undefined);
  assert.equal(owners.setsInUse.size, 0);
});

test("the first claimant by name decides the verdict, in any order of owners", () => {
  for (const order of [
    ["a", "b", "c"],
    ["c", "b", "a"],
    ["b", "c", "a"],
  ]) {
    const owners = new ElementOwners();
    for (const owner of order) replace(owners, owner, [], [goingTo(owner)]);
    assert.equal(ownerOf(owners, goingTo("a")), "a");
    assert.deepEqual(
      ["a", "b", "c"].filter((owner) => owners.isEffective(owner, "service-ips", KEY.join(" . "))),
      ["a"],
    );
  }
});

test("the next claimant by name takes over from one that gives up", () => {
  const owners = new ElementOwners();
  for (const owner of ["c", "a", "b"]) replace(owners, owner, [], [goingTo(owner)]);
  assert.deepEqual(replace(owners, "a", [goingTo("a")], []), [
    { set: "service-ips", before: goingTo("a").element, after: goingTo("b").element },
  ]);
  assert.deepEqual(replace(owners, "c", [goingTo("c")], []), []);
  assert.equal(owners.ownerAt("service-ips", KEY.join(" . ")), "b");
});

test("a claim that stays the same changes nothing", () => {
  const owners = new ElementOwners();
  replace(owners, "a", [], [goingTo("x"), ADDRESS]);
  assert.deepEqual(replace(owners, "a", [goingTo("x"), ADDRESS], [ADDRESS, goingTo("x")]), []);
});

test("another verdict, or another comment, is a change", () => {
  const owners = new ElementOwners();
  replace(owners, "a", [], [goingTo("x")]);
  const [change] = replace(owners, "a", [goingTo("x")], [goingTo("y")]);
  assert.deepEqual(change, { set: "service-ips", before: goingTo("x").element, after: goingTo("y").element });
  assert.equal(replace(owners, "a", [goingTo("y")], [goingTo("y", "ns/a:p")]).length, 1);
});

test("of two elements of one owner at one key, the later counts, and both go together", () => {
  const owners = new ElementOwners();
  const both = [goingTo("x"), goingTo("y")];
  const [added] = replace(owners, "a", [], both);
  assert.deepEqual(added?.after, goingTo("y").element);
  assert.equal(replace(owners, "a", both, []).length, 1);
  assert.equal(ownerOf(owners, goingTo("y")), undefined);
});

test("of sets that are not tracked the difference is told, and nothing is remembered but whether they are in use", () => {
  const owners = new ElementOwners((set) => set === "cluster-ips");
  assert.deepEqual(replace(owners, "a", [], [goingTo("x"), ADDRESS]), [
    { set: "service-ips", before: undefined, after: goingTo("x").element },
    { set: "cluster-ips", before: undefined, after: ADDRESS.element },
  ]);
  assert.equal(ownerOf(owners, goingTo("x")), undefined);
  assert.deepEqual([...owners.setsInUse].sort(), ["cluster-ips", "service-ips"]);
  const { setsVersion } = owners;
  assert.deepEqual(replace(owners, "a", [goingTo("x"), ADDRESS], [goingTo("x"), ADDRESS]), []);
  assert.deepEqual(replace(owners, "a", [goingTo("x"), ADDRESS], [goingTo("y"), ADDRESS]), [
    { set: "service-ips", before: goingTo("x").element, after: goingTo("y").element },
  ]);
  assert.equal(owners.setsVersion, setsVersion);
  assert.deepEqual(replace(owners, "a", [goingTo("y"), ADDRESS], [ADDRESS]), [
    { set: "service-ips", before: goingTo("y").element, after: undefined },
  ]);
  assert.deepEqual([...owners.setsInUse], ["cluster-ips"]);
  assert.notEqual(owners.setsVersion, setsVersion);
});

test("what was found in the kernel is remembered, so that another owner of the key does not collide with it", () => {
  const owners = new ElementOwners(() => false);
  owners.replace("a", { elements: [] }, { elements: [goingTo("found")], isFound: true });
  assert.deepEqual(replace(owners, "b", [], [goingTo("b")]), []);
  assert.equal(owners.isEffective("b", "service-ips", KEY.join(" . ")), false);
  assert.deepEqual(owners.replace("a", { elements: [goingTo("found")], isFound: true }, { elements: [] }), [
    { set: "service-ips", before: goingTo("found").element, after: goingTo("b").element },
  ]);
  assert.deepEqual(replace(owners, "b", [goingTo("b")], []), [
    { set: "service-ips", before: goingTo("b").element, after: undefined },
  ]);
});
