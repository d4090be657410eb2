/** A first load of the flat layout: unused elements in portions, and then the rules. On a kernel in memory. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../../testkit/dataplane/test-cluster.ts";
import { elementKey } from "../../../kernel/nftables/ruleset.ts";
import { foreignInMemory } from "../../../kernel/nftables/testing/foreign-hand.ts";
import { ip } from "../../../model/testing/records.ts";
import { newModel, type TestModel } from "../testing/backend-rig.ts";
import { sorted } from "../testing/observations.ts";
import { FLAT_SETS } from "./names.ts";
import { flatSet } from "./sets.ts";

/** Services with two endpoints each; the first one also has session affinity. */
function modelWith(services: number, options: { readonly portsAtOnce?: number } = {}): TestModel {
  const model = newModel({ layout: "Flat", ...options });
  for (let n = 1; n <= services; n += 1) {
    const affinity = n === 1 ? ({ sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 60 } as const) : {};
    model.set(port(`s${n}`, `10.96.0.${n}`, affinity), [remote(`10.180.0.${n}`), remote(`10.180.1.${n}`)]);
  }
  return model;
}

test("elements of many services are made in portions before there is a chain, and none of them twice", async () => {
  const { rig } = modelWith(5, { portsAtOnce: 2 });
  await rig.sync();
  const kinds = rig.kernel.transactions.map((operations) => [...new Set(operations.map(({ kind }) => kind))]);
  const portion = ["add-table", "add-set", "add-elements"];
  assert.deepEqual(kinds, [portion, portion, portion, ["add-set", "add-chain", "add-rule"]]);
  const whole = modelWith(5);
  await whole.rig.sync();
  assert.equal(whole.rig.kernel.transactions.length, 1);
  assert.deepEqual(sorted(rig.list()), sorted(whole.rig.list()));
  assert.deepEqual(await rig.operationsOf({ full: true }), []);
});

test("what the kernel refuses of a portion is left out and named, and the others are there", async () => {
  const model = modelWith(5, { portsAtOnce: 2 });
  const allow = model.rig.kernel.refuse((operation) =>
    operation.kind === "add-elements" && operation.elements.some(({ comment }) => comment === "ns/s3:p")
      ? { code: "unsupported" }
      : undefined,
  );
  const { failures } = await model.rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["ns/s3:p"],
  );
  const frontends = flatSet(FLAT_SETS.frontends) ?? assert.fail();
  const served = async () => (await model.rig.kernel.connectAnother().readElements(frontends))?.length;
  assert.equal(await served(), 4);
  allow();
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.equal(await served(), 5);
});

test("what another program takes away between two portions is there in the end", async () => {
  const model = modelWith(5, { portsAtOnce: 2 });
  const { kernel } = model.rig;
  const set = flatSet(FLAT_SETS.frontends) ?? assert.fail();
  const key = [ip("10.96.0.1"), "tcp", 80] as const;
  let isDone = false;
  kernel.refuse((operation) => {
    if (isDone || operation.kind !== "add-elements") return undefined;
    if (!operation.elements.some(({ comment }) => comment === "ns/s5:p")) return undefined;
    isDone = true;
    queueMicrotask(() => void foreignInMemory(kernel.connectAnother(), { kind: "delete-element", set, key }));
    return undefined;
  });
  await model.rig.sync();
  assert.ok(isDone);
  // The watch has reported it as well.
  await model.rig.sync();
  const keys = ((await kernel.connectAnother().readElements(set)) ?? []).map((element) => elementKey(element.key));
  assert.deepEqual(
    keys.sort(),
    [1, 2, 3, 4, 5].map((n) => `10.96.0.${n} . tcp . 80`),
  );
  assert.deepEqual(await model.rig.operationsOf({ full: true }), []);
});
