import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { fits, type Pattern } from "../../trace/value.ts";
import { addressDomain, type Domain, Groups, onlyAddresses, PORTS } from "./domain.ts";

/** Few values, so that patterns meet. */
const SMALL = 40;
const anyPattern: fc.Arbitrary<Pattern> = fc.oneof(
  fc.nat({ max: SMALL }).map((value): Pattern => ({ kind: "exact", value })),
  fc
    .tuple(fc.nat({ max: SMALL }), fc.nat({ max: 10 }))
    .map(([first, more]): Pattern => ({ kind: "range", first: BigInt(first), last: BigInt(first + more) })),
);
const anyPatterns = fc.array(anyPattern, { maxLength: 6 });

/** All values of which a test can tell to which part they belong: the small ones, and one that no pattern fits. */
const VALUES = [...Array(SMALL + 12).keys(), 65_535];

function partsWith(parts: readonly Domain[], value: number): readonly Domain[] {
  return parts.filter((part) => part.has(value));
}

test("parts of a domain are disjoint and contain all of it; values of one part fit the same patterns", () => {
  fc.assert(
    fc.property(anyPatterns, anyPatterns, (first, second) => {
      for (const whole of [PORTS, ...PORTS.divided(new Groups(first, String))]) {
        const parts = whole.divided(new Groups(second, String));
        const seen = new Map<Domain, string>();
        for (const value of VALUES) {
          const owners = partsWith(parts, value);
          assert.equal(owners.length, whole.has(value) ? 1 : 0, `${value}`);
          const [owner] = owners;
          if (owner === undefined) continue;
          const fitting = second.map((pattern) => fits(pattern, value)).join();
          assert.equal(seen.get(owner) ?? fitting, fitting, `${value} beside others of its part`);
          seen.set(owner, fitting);
        }
      }
    }),
  );
});

test("parts with one outcome are one", () => {
  fc.assert(
    fc.property(anyPatterns, (patterns) => {
      const parts = PORTS.divided(new Groups(patterns, () => "the same"));
      assert.ok(parts.length <= 2);
      const fitsAny = (value: number) => patterns.some((pattern) => fits(pattern, value));
      for (const value of VALUES)
        assert.equal(partsWith(parts, value)[0] === parts[0], fitsAny(value) || parts.length === 1);
    }),
  );
});

test("a sample is in its domain, and another than the one to avoid where there is a choice", () => {
  fc.assert(
    fc.property(anyPatterns, (patterns) => {
      for (const part of PORTS.divided(new Groups(patterns, String))) {
        const sample = part.sample();
        assert.ok(part.has(sample));
        const other = part.sample(sample);
        assert.ok(part.has(other));
        assert.equal(other === sample, part.isSingle);
      }
    }),
  );
});

test("addresses inside ranges, and outside them", () => {
  const pods: Pattern = { kind: "range", first: 0x0a00_0000n, last: 0x0aff_ffffn };
  const [inside, outside] = [onlyAddresses(32, [pods]), addressDomain(32, [pods])];
  assert.deepEqual(
    ["10.0.0.0", "10.255.255.255", "11.0.0.0", "9.255.255.255"].map((address) => [
      inside.has(address),
      outside.has(address),
    ]),
    [
      [true, false],
      [true, false],
      [false, true],
      [false, true],
    ],
  );
  assert.ok(inside.has(inside.sample()) && outside.has(outside.sample()));
  assert.equal(addressDomain(128, []).has("fd00::1"), true);
});
