import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftElement } from "../../kernel/nftables/ruleset.ts";
import { ip } from "../../model/testing/records.ts";
import { ElementClaims } from "./element-claims.ts";
import type { SharedElement } from "./table-plan.ts";

const KEY = [ip("198.51.100.1"), "tcp" as const, 80];

function goingTo(chain: string, comment?: string): SharedElement {
  const verdict = { kind: "goto", chain } as const;
  const element: NftElement = comment === undefined ? { key: KEY, verdict } : { key: KEY, verdict, comment };
  return { set: "service-ips", element };
}

const ADDRESS: SharedElement = { set: "cluster-ips", element: { key: [ip("10.96.0.1")] } };

function wanted(claims: ElementClaims, set: string): (readonly [string, NftElement])[] {
  return Array.from(claims.wanted(set), ({ owner, element }) => [owner, element]);
}

test("the first claim of a key adds the element, the last one removed deletes it", () => {
  const claims = new ElementClaims();
  assert.deepEqual(claims.replace("a", [], [ADDRESS]), [
    { set: "cluster-ips", before: undefined, after: ADDRESS.element },
  ]);
  assert.deepEqual(claims.replace("b", [], [ADDRESS]), []);
  assert.deepEqual(claims.replace("a", [ADDRESS], []), []);
  assert.deepEqual(claims.replace("b", [ADDRESS], []), [
    { set: "cluster-ips", before: ADDRESS.element, after: undefined },
  ]);
  assert.deepEqual(wanted(claims, "cluster-ips"), []);
});

test("the first claimant by name decides the verdict, whatever the order of claims", () => {
  for (const order of [
    ["a", "b", "c"],
    ["c", "b", "a"],
    ["b", "c", "a"],
  ]) {
    const claims = new ElementClaims();
    for (const owner of order) claims.replace(owner, [], [goingTo(owner)]);
    assert.deepEqual(wanted(claims, "service-ips"), [["a", goingTo("a").element]]);
  }
});

test("the next claimant by name takes over from one that gives up", () => {
  const claims = new ElementClaims();
  for (const owner of ["c", "a", "b"]) claims.replace(owner, [], [goingTo(owner)]);
  assert.deepEqual(claims.replace("a", [goingTo("a")], []), [
    { set: "service-ips", before: goingTo("a").element, after: goingTo("b").element },
  ]);
  assert.deepEqual(claims.replace("c", [goingTo("c")], []), []);
  assert.equal(claims.ownerAt("service-ips", KEY.join(" . ")), "b");
});

test("a claim that stays the same changes nothing", () => {
  const claims = new ElementClaims();
  claims.replace("a", [], [goingTo("x"), ADDRESS]);
  assert.deepEqual(claims.replace("a", [goingTo("x"), ADDRESS], [ADDRESS, goingTo("x")]), []);
});

test("another verdict, or another comment, is a change", () => {
  const claims = new ElementClaims();
  claims.replace("a", [], [goingTo("x")]);
  const [change] = claims.replace("a", [goingTo("x")], [goingTo("y")]);
  assert.deepEqual(change, { set: "service-ips", before: goingTo("x").element, after: goingTo("y").element });
  assert.equal(claims.replace("a", [goingTo("y")], [goingTo("y", "ns/a:p")]).length, 1);
});

test("of two claims of one owner for one key, the later counts, and both go together", () => {
  const claims = new ElementClaims();
  const both = [goingTo("x"), goingTo("y")];
  claims.replace("a", [], both);
  assert.deepEqual(wanted(claims, "service-ips"), [["a", goingTo("y").element]]);
  assert.equal(claims.replace("a", both, []).length, 1);
  assert.deepEqual(wanted(claims, "service-ips"), []);
});
