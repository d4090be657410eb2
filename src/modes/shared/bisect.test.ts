import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { bisect } from "./bisect.ts";

const REASON = "no";

/** Rejects groups with one of these parts; names the first one, or none. */
function kernelRefusing(bad: ReadonlySet<number>, isNamed: boolean) {
  const groups: (readonly number[])[] = [];
  const attempt = async (group: readonly number[]) => {
    groups.push(group);
    const offender = group.find((part) => bad.has(part));
    if (offender === undefined) return undefined;
    return { reason: REASON, offender: isNamed ? offender : undefined };
  };
  return { groups, attempt };
}

test("finds every offender and accepts all others in order, whether the kernel names offenders or not", async () => {
  const input = fc.record({
    count: fc.nat(40),
    bad: fc.uniqueArray(fc.nat(39)),
    isNamed: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(input, async ({ count, bad, isNamed }) => {
      const parts = Array.from({ length: count }, (_, index) => index);
      const { groups, attempt } = kernelRefusing(new Set(bad), isNamed);
      const offenders: number[] = [];
      const accepted = await bisect(parts, { attempt, onOffender: (part) => offenders.push(part) });
      assert.deepEqual(
        accepted,
        parts.filter((part) => !bad.includes(part)),
      );
      assert.deepEqual(
        offenders.sort((a, b) => a - b),
        parts.filter((part) => bad.includes(part)),
      );
      assert.ok(groups.every((group) => group.length > 0));
    }),
  );
});

test("one offender among many costs one refusal when it is named, and a logarithm of them when it is not", async () => {
  const parts = Array.from({ length: 64 }, (_, index) => index);
  for (const [isNamed, most] of [
    [true, 3],
    [false, 13],
  ] as const) {
    const { groups, attempt } = kernelRefusing(new Set([40]), isNamed);
    await bisect(parts, { attempt, onOffender: () => {} });
    assert.ok(groups.length <= most, `${groups.length} attempts`);
  }
});

test("leaves the rest untried when it is given up", async () => {
  const { groups, attempt } = kernelRefusing(new Set([0, 1, 2, 3]), false);
  const offenders: number[] = [];
  const accepted = await bisect([0, 1, 2, 3, 4, 5], {
    attempt,
    onOffender: (part) => offenders.push(part),
    isGivenUp: () => groups.length >= 3,
  });
  assert.deepEqual(groups, [[0, 1, 2, 3, 4, 5], [0, 1, 2], [0]]);
  assert.deepEqual({ accepted, offenders }, { accepted: [], offenders: [0] });
});

test("ends with what cannot be the fault of a part", async () => {
  const lost = new Error("the kernel is gone");
  const attempt = () => Promise.reject(lost);
  await assert.rejects(bisect([1, 2], { attempt, onOffender: () => assert.fail() }), lost);
  assert.deepEqual(await bisect([], { attempt, onOffender: () => assert.fail() }), []);
});
