import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { byHash, fateText, isSameFate, joined, noticed } from "./fate.ts";

describe("ways that a hash decides", () => {
  const one = "to 10.0.0.1:80, masqueraded";
  const fate = (...ways: readonly (readonly [way: string, hashed: string, odds: number])[]) =>
    joined(new Map(ways.map(([way, hashed, odds]) => [byHash(way, hashed), odds])));

  test("differ from chance and from other hashes", () => {
    const hashed = fate([one, "a", 0.5], ["to 10.0.0.2:80", "b", 0.5]);
    const swapped = fate([one, "b", 0.5], ["to 10.0.0.2:80", "a", 0.5]);
    const random = fate([one, "", 0.5], ["to 10.0.0.2:80", "", 0.5]);
    assert.ok(isSameFate(hashed, fate(["to 10.0.0.2:80", "b", 0.5], [one, "a", 0.5])));
    assert.ok(!isSameFate(hashed, swapped));
    assert.ok(!isSameFate(hashed, random));
    assert.equal(noticed(hashed, swapped), "a client reaches another endpoint than through other nodes");
  });

  test("are one for each endpoint, in any order of its hashes", () => {
    const joint = fate([one, "a", 0.25], [one, "b", 0.5], ["to 10.0.0.2:80", "c", 0.25]);
    assert.equal(joint.size, 2);
    assert.ok(isSameFate(joint, fate(["to 10.0.0.2:80", "c", 0.25], [one, "b", 0.5], [one, "a", 0.25])));
    assert.ok(!isSameFate(joint, fate([one, "a", 0.25], [one, "d", 0.5], ["to 10.0.0.2:80", "c", 0.25])));
    assert.match(
      fateText(joint),
      /^75 % to 10\.0\.0\.1:80, masqueraded, by hash \w+; 25 % to 10\.0\.0\.2:80, by hash c$/,
    );
  });
});
