/** Service ports that the kernel rejects, and deletions that it does not accept yet. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import { foreignInMemory } from "../../kernel/nftables/testing/foreign-hand.ts";
import { ip } from "../../model/testing/records.ts";
import { endpointNames } from "./names.ts";
import { clusterChain, newModel, operationText, type TestModel } from "./testing/backend-rig.ts";

const PORTS = Array.from({ length: 40 }, (_, index) =>
  port(`s${String(index).padStart(2, "0")}`, `10.96.0.${index + 1}`),
);
const [A, B] = PORTS;

function first() {
  return { a: A ?? assert.fail(), b: B ?? assert.fail() };
}

/** Makes the kernel reject new rules of these chains. */
function refuseRules(model: TestModel, chains: readonly string[], isNamed = true): () => void {
  return model.rig.kernel.refuse((operation) =>
    operation.kind === "add-rule" && chains.includes(operation.chain) ? { code: "unsupported", isNamed } : undefined,
  );
}

/** All objects of a listing that name a Service, in a fixed order. */
function listingOf(model: TestModel, service: string): string[] {
  const lines = model.rig.list().flatMap((object) => {
    const text = JSON.stringify(object);
    return text.startsWith('{"chain"') || text.startsWith('{"rule"') ? [text] : [];
  });
  return lines.filter((text) => text.includes(`/${service}/`)).sort();
}

function sorted(model: TestModel): string[] {
  return canonicalNftables(model.rig.list()).split("\n");
}

async function assertAsFromNothing(model: TestModel): Promise<void> {
  assert.deepEqual(sorted(model), canonicalNftables((await model.rig.fromNothing()).list()).split("\n"));
}

for (const isNamed of [true, false]) {
  const how = isNamed ? "that the kernel names" : "that must be searched for";
  test(`ports ${how} are left out of the first sync, all others are programmed`, async () => {
    const model = newModel();
    const bad = [3, 4, 21].map((index) => PORTS[index] ?? assert.fail());
    for (const [index, one] of PORTS.entries()) model.set(one, [remote(`10.180.0.${index}`)]);
    const allow = refuseRules(model, bad.map(clusterChain), isNamed);
    const { failures } = await model.rig.sync();
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      ["ns/s03:p", "ns/s04:p", "ns/s21:p"],
    );
    for (const { reason } of failures) assert.match(reason, /add-rule: refused on purpose/);
    const content = await model.rig.kernel.connect().read();
    for (const one of PORTS) assert.equal(content?.chains.has(clusterChain(one)), !bad.includes(one));
    assert.equal(content?.sets.get("service-ips")?.elements.length, PORTS.length - bad.length);
    assert.ok(model.rig.kernel.refusals < 30, `${model.rig.kernel.refusals} refused transactions`);

    allow();
    assert.deepEqual((await model.rig.sync()).failures, []);
    await assertAsFromNothing(model);
  });
}

test("a refused port keeps its last known good rules, in the partial sync and in full ones", async () => {
  const { a, b } = first();
  const model = newModel();
  model.set(a, [local("10.180.0.1")]);
  model.set(b, [local("10.180.0.2")]);
  await model.rig.sync();
  const [before, rules] = [sorted(model), listingOf(model, a.name.name)];
  const allow = refuseRules(model, [clusterChain(a)]);
  model.setEndpoints(a, [local("10.180.0.9")]);
  assert.deepEqual((await model.rig.sync()).failures, [
    { subject: "ns/s00:p", reason: "add-rule: refused on purpose" },
  ]);
  assert.deepEqual(sorted(model), before);
  await model.rig.sync({ full: true });
  assert.deepEqual(sorted(model), before);

  model.setEndpoints(b, []);
  assert.equal((await model.rig.sync()).failures.length, 1);
  assert.deepEqual(listingOf(model, a.name.name), rules, "still there while others change");
  allow();
  assert.deepEqual((await model.rig.sync()).failures, [], "tried again without being asked to");
  await assertAsFromNothing(model);
});

test("a restarted process leaves a refused port the rules that it has", async () => {
  const { a, b } = first();
  const model = newModel();
  const external = { isExternallyAccessible: true, externalIPs: [ip("198.51.100.1")], nodePort: 30000 };
  const sticky = { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 } as const;
  model.set({ ...a, ...external, ...sticky }, [local("10.180.0.1"), remote("10.180.0.2")]);
  model.set(b, [local("10.180.0.2")]);
  await model.rig.sync();
  const before = sorted(model);
  refuseRules(model, [clusterChain(a)]);
  model.setEndpoints(a, [local("10.180.0.1"), remote("10.180.0.3")]);
  model.rig.restart();
  const { failures } = await model.rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["ns/s00:p"],
  );
  assert.deepEqual(sorted(model), before);
  assert.deepEqual((await model.rig.operationsOf({ full: true })).map(operationText), []);
});

test("a restarted process leaves a refused port the refusals of traffic that it has", async () => {
  const { a } = first();
  const model = newModel();
  model.set(a);
  await model.rig.sync();
  const before = sorted(model);
  refuseRules(model, [clusterChain(a)]);
  model.setEndpoints(a, [remote("10.180.0.1")]);
  model.rig.restart();
  await model.rig.sync();
  assert.deepEqual(sorted(model), before);
});

test("a refused port costs the others one small transaction of its own", async () => {
  const { a, b } = first();
  const model = newModel();
  for (const one of [a, b]) model.set(one, [remote("10.180.0.1")]);
  refuseRules(model, [clusterChain(a)]);
  await model.rig.sync();
  const { kernel, log, metrics } = model.rig;
  kernel.takeOperations();
  const [refusals, lines] = [kernel.refusals, log.length];
  model.setEndpoints(b, [remote("10.180.0.2")]);
  assert.equal((await model.rig.sync()).failures.length, 1);
  assert.deepEqual(kernel.takeOperations().map(operationText), [
    `flush-chain ${clusterChain(b)}`,
    `add-rule ${clusterChain(b)}`,
  ]);
  assert.equal(kernel.refusals, refusals + 1);
  assert.deepEqual(log.slice(lines), [], "the same refusal is logged once");
  assert.equal(metrics.syncFailures, 2);
});

/** Two ports, the first refused by a comparison that took 100 ms; since then the kernel takes both. */
async function comparedIn100Ms() {
  const { a, b } = first();
  const model = newModel();
  for (const one of [a, b]) model.set(one, [remote("10.180.0.1")]);
  const allow = refuseRules(model, [clusterChain(a)]);
  model.rig.kernel.afterNextRead(async () => {
    model.rig.nowMs += 100;
  });
  await model.rig.sync();
  allow();
  return { a, b, model };
}

test("a refused port is tried again in a twentieth of the time, for that compares everything", async () => {
  const { b, model } = await comparedIn100Ms();
  const { rig } = model;
  rig.nowMs += 1899;
  model.setEndpoints(b, [remote("10.180.0.2")]);
  const { failures, wasFull } = await rig.sync();
  assert.deepEqual([failures.length, wasFull], [1, false]);
  rig.nowMs += 1;
  assert.deepEqual((await rig.sync()).failures, []);
  await assertAsFromNothing(model);
});

test("a refused port that is mended is tried after a short rest, also if nothing else changes", async () => {
  const { a, model } = await comparedIn100Ms();
  const { rig } = model;
  model.setEndpoints(a, [remote("10.180.0.2")]);
  assert.equal((await rig.sync()).failures.length, 1);
  rig.nowMs += 400;
  assert.equal(rig.driver.isSyncDue, false);
  rig.wake();
  await setImmediate();
  assert.equal(rig.driver.isSyncDue, true);
  assert.deepEqual((await rig.sync()).failures, []);
  await assertAsFromNothing(model);
});

test("a refused port that is deleted is gone at once", async () => {
  const { a, b } = first();
  const model = newModel();
  for (const one of [a, b]) model.set(one, [remote("10.180.0.1")]);
  await model.rig.sync();
  refuseRules(model, [clusterChain(a)]);
  model.setEndpoints(a, [remote("10.180.0.2")]);
  model.rig.kernel.afterNextRead(async () => {
    model.rig.nowMs += 100;
  });
  assert.equal((await model.rig.sync()).failures.length, 1);
  model.delete(a);
  assert.deepEqual((await model.rig.sync()).failures, []);
  await assertAsFromNothing(model);
});

test("a refused port that is deleted is a failure no more", async () => {
  const { a } = first();
  const model = newModel();
  model.set(a, [remote("10.180.0.1")]);
  await model.rig.sync();
  refuseRules(model, [clusterChain(a)]);
  model.setEndpoints(a, [remote("10.180.0.2")]);
  await model.rig.sync();
  model.delete(a);
  assert.deepEqual((await model.rig.sync()).failures, []);
  await assertAsFromNothing(model);
});

test("a partial sync that is refused because of damage ends as a full one", async () => {
  const { a, b } = first();
  const model = newModel();
  for (const one of [a, b]) model.set(one, [remote("10.180.0.1")]);
  await model.rig.sync();
  // The notification has not arrived yet.
  model.rig.stopWatching();
  await foreignInMemory(model.rig.kernel.connectAnother(), { kind: "delete-table" });
  model.setEndpoints(b, [remote("10.180.0.2")]);
  const { failures, wasFull } = await model.rig.sync();
  assert.deepEqual([failures, wasFull], [[], true]);
  await assertAsFromNothing(model);
  assert.equal(model.rig.metrics.syncFailures, 1);
});

test("what belongs to no service and is refused fails the sync", async () => {
  const { a } = first();
  const model = newModel();
  model.set(a, [remote("10.180.0.1")]);
  model.rig.kernel.refuse((operation) =>
    operation.kind === "add-rule" && operation.chain === "masquerading" ? { code: "unsupported" } : undefined,
  );
  await assert.rejects(model.rig.sync(), { code: "unsupported" });
  assert.deepEqual(model.rig.list(), []);
});

test("when every service is refused, the search ends", async () => {
  const model = newModel();
  for (let index = 0; index < 200; index++) model.set(port(`n${index}`, `10.97.0.${index}`));
  model.rig.kernel.refuse((operation) =>
    operation.kind === "add-elements" ? { code: "unsupported", isNamed: false } : undefined,
  );
  await assert.rejects(model.rig.sync(), { code: "unsupported" });
  assert.ok(model.rig.kernel.refusals < 200, `${model.rig.kernel.refusals} refused transactions`);
});

test("a good port behind more bad ones than one search tries gets in with a later sync", async () => {
  const model = newModel();
  const bad = Array.from({ length: 150 }, (_, index) => port(`bad${index}`, `10.97.0.${index}`));
  const good = port("good", "10.98.0.1");
  for (const one of [...bad, good]) model.set(one, [remote("10.180.0.1")]);
  refuseRules(model, bad.map(clusterChain));
  for (let syncs = 0; syncs < 3; syncs++) await assert.rejects(model.rig.sync({ full: true }), { code: "unsupported" });
  assert.ok((await model.rig.kernel.connect().read())?.chains.has(clusterChain(good)));
});

test("before kernel 6.2 a chain is emptied at once and deleted a second later", async () => {
  const { a, b } = first();
  const model = newModel({ releasesLate: true });
  const { rig } = model;
  for (const one of [a, b]) model.set(one, [local("10.180.0.1")]);
  await rig.sync();
  model.delete(a);
  const chain = clusterChain(a);
  assert.deepEqual((await rig.operationsOf()).map(operationText), [
    "delete-elements cluster-ips 10.96.0.1",
    "delete-elements service-ips 10.96.0.1 . tcp . 80",
    `flush-chain ${chain}`,
  ]);
  assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
  rig.nowMs += 999;
  assert.deepEqual((await rig.operationsOf({ full: true })).map(operationText), []);
  rig.passTime(1);
  assert.deepEqual((await rig.operationsOf()).map(operationText), [`delete-chain ${chain}`]);
  await assertAsFromNothing(model);
});

test("a chain that is wanted again before it could be deleted is written again and stays", async () => {
  const { a } = first();
  const model = newModel({ releasesLate: true });
  const { rig } = model;
  model.set(a, [local("10.180.0.1")]);
  await rig.sync();
  model.setEndpoints(a, []);
  await rig.sync();
  model.setEndpoints(a, [local("10.180.0.1")]);
  await rig.sync();
  rig.passTime(5000);
  assert.deepEqual(await rig.operationsOf(), []);
  assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
  await assertAsFromNothing(model);
});

test("a chain that others jump to is emptied, and deleted when they let go", async () => {
  const { a, b } = first();
  const model = newModel();
  const { rig } = model;
  for (const one of [a, b]) model.set(one, [local("10.180.0.1")]);
  await rig.sync();
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "add-jump", chain: "theirs", to: clusterChain(a) });
  for (const one of [a, b]) model.delete(one);
  assert.deepEqual((await rig.sync()).failures, []);
  rig.passTime(1000);
  assert.deepEqual((await rig.operationsOf()).map(operationText), [`delete-chain ${clusterChain(b)}`]);
  assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 1 });
  assert.equal(rig.log.at(-1)?.message, "Unable to delete stale chains; will retry later");
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "theirs" });
  rig.passTime(1000);
  assert.deepEqual((await rig.operationsOf()).map(operationText), [`delete-chain ${clusterChain(a)}`]);
});

test("a deferred deletion of what another program has deleted is forgotten", async () => {
  const { a } = first();
  const model = newModel({ releasesLate: true });
  const { rig } = model;
  model.set(a, [local("10.180.0.1")]);
  await rig.sync();
  model.delete(a);
  await rig.sync();
  rig.passTime(1000);
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "delete-chain", chain: clusterChain(a) });
  await rig.sync();
  rig.passTime(1000);
  assert.deepEqual(await rig.operationsOf(), []);
  assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
});

test("a refused port's chain that only waits for its deletion is not kept", async () => {
  const { a } = first();
  const model = newModel();
  const { rig } = model;
  const sticky = { ...a, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 10 } as const;
  const [one, two] = [remote("10.180.0.1"), remote("10.180.0.2")];
  model.set(sticky, [one, two]);
  await rig.sync();
  const held = endpointNames(a.name, two).chain;
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "add-jump", chain: "theirs", to: held });
  model.setEndpoints(a, [one]);
  await rig.sync();
  const allow = refuseRules(model, [clusterChain(a)]);
  model.setEndpoints(a, [one, remote("10.180.0.3")]);
  await rig.sync();
  await rig.sync({ full: true });
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "theirs" });
  rig.passTime(1000);
  const isDeletion = (operation: NftOperation) => operation.kind === "delete-chain" && operation.chain === held;
  assert.equal((await rig.operationsOf()).filter(isDeletion).length, 1);
  allow();
  assert.deepEqual((await rig.sync()).failures, []);
});

test("what others damage of a port that is refused is repaired when it is accepted", async () => {
  const { a } = first();
  const model = newModel();
  const sticky = { ...a, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 } as const;
  const [old, added] = [remote("10.180.0.1"), remote("10.180.0.2")];
  model.set(sticky, [old]);
  await model.rig.sync();
  const allow = refuseRules(model, [endpointNames(a.name, added).chain]);
  model.setEndpoints(sticky, [old, added]);
  assert.equal((await model.rig.sync()).failures.length, 1);
  // The plan of this chain has not changed.
  const { chain } = endpointNames(a.name, old);
  await foreignInMemory(model.rig.kernel.connectAnother(), { kind: "flush-chain", chain });
  assert.equal((await model.rig.sync()).failures.length, 1);
  allow();
  assert.deepEqual((await model.rig.sync()).failures, []);
  await assertAsFromNothing(model);
});

test("what goes to a chain that was renamed goes to ours again while another port is refused", async () => {
  const { a, b } = first();
  const model = newModel();
  const one = remote("10.180.0.1");
  model.set({ ...a, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 }, [one]);
  await model.rig.sync();
  const made = listingOf(model, a.name.name);
  refuseRules(model, [clusterChain(b)], false);
  model.set(b, [remote("10.180.0.2")]);
  assert.equal((await model.rig.sync()).failures.length, 1);
  model.rig.kernel.renameChain(endpointNames(a.name, one).chain, "evil");
  assert.equal((await model.rig.sync()).failures.length, 1);
  assert.deepEqual(listingOf(model, a.name.name), made);
});
