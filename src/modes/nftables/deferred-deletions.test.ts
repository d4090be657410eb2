/** Deletions that kernels before 6.2 do not accept yet, and objects that are wanted again in the meantime. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { type Nftables, NftError } from "../../kernel/nftables/nftables.ts";
import { foreignInMemory } from "../../kernel/nftables/testing/foreign-hand.ts";
import { silentLogger } from "../../logging/logger.ts";
import { Committer } from "./committer.ts";
import { TransactionDraft } from "./draft.ts";
import { clusterChain, newModel, operationText } from "./testing/backend-rig.ts";

const STICKY = { ...port("a", "10.96.0.1"), sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 } as const;
const [ONE, TWO] = [remote("10.180.0.1"), remote("10.180.0.2")];

for (const full of [false, true]) {
  test(`an affinity set that a ${full ? "full" : "partial"} sync wants again is not to be deleted any more`, async () => {
    const model = newModel({ releasesLate: true });
    const { rig } = model;
    model.set(STICKY, [ONE, TWO]);
    await rig.sync();
    model.delete(STICKY);
    await rig.sync();
    model.set(STICKY, [ONE, TWO]);
    await rig.sync({ full });
    for (let second = 0; second < 3; second++) {
      rig.passTime(1000);
      assert.deepEqual((await rig.operationsOf()).map(operationText), []);
    }
    assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
  });
}

test("more deletions than a call takes arguments can be withheld", async () => {
  let refusals = 0;
  const transact = async (): Promise<void> => {
    if (refusals++ === 0) throw new NftError("busy", "in use", 0);
  };
  const nft = { transact } as Partial<Nftables> as Nftables;
  const clock = { monotonicMs: () => 0 };
  const committer = new Committer({ nft, cleanupFailures: { inc() {} }, log: silentLogger, clock });
  const draft = new TransactionDraft();
  for (let index = 0; index < 200_000; index += 1) draft.deleteChain(`service-${index}`);
  await committer.commit(draft);
  assert.equal(committer.deferred.size, 200_000);
});

function manyServices(options: Parameters<typeof newModel>[0]) {
  const model = newModel(options);
  const ports = Array.from({ length: 40 }, (_, index) => port(`s${index}`, `10.96.1.${index + 1}`));
  for (const one of ports) model.set(one, [remote("10.180.0.1")]);
  return { model, ports };
}

test("the chains of the compatible layout go together a second after a change to the flat one", async () => {
  const { model } = manyServices({ releasesLate: true });
  const { rig } = model;
  await rig.sync();
  rig.layout = "Flat";
  rig.restart();
  await rig.sync();
  const refusals = rig.kernel.refusals;
  rig.passTime(1000);
  await rig.sync();
  assert.equal(rig.kernel.refusals, refusals);
  assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
  assert.deepEqual(canonicalNftables(rig.list()), canonicalNftables((await rig.fromNothing()).list()));
});

test("many chains that another program holds cost a sync a few refusals, and all others go", async () => {
  const { model, ports } = manyServices({});
  const { rig } = model;
  await rig.sync();
  const foreign = rig.kernel.connectAnother();
  const held = ports.slice(0, 30).map(clusterChain);
  for (const to of held) await foreignInMemory(foreign, { kind: "add-jump", chain: "theirs", to });
  for (const one of ports) model.delete(one);
  await rig.sync();
  const gone: string[] = [];
  for (let round = 0; round < 6; round++) {
    rig.passTime(1000);
    const refusals = rig.kernel.refusals;
    gone.push(...(await rig.operationsOf()).map(operationText));
    assert.ok(rig.kernel.refusals - refusals <= 8, `${rig.kernel.refusals - refusals} refusals`);
  }
  assert.deepEqual(
    gone.sort(),
    ports
      .slice(30)
      .map((one) => `delete-chain ${clusterChain(one)}`)
      .sort(),
  );
});
