/** Restarts, changes to the table by other programs, and full syncs that repair it. */
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { MemoryNftKernel } from "../../../testkit/fakes/nftables/memory-nftables.ts";
import { NftError, type NftExpectation } from "../../kernel/nftables/nftables.ts";
import { foreignInMemory } from "../../kernel/nftables/testing/foreign-hand.ts";
import { ip } from "../../model/testing/records.ts";
import { SHARED_SETS } from "./compatible/plan-static.ts";
import { endpointNames, servicePortChains } from "./names.ts";
import { clusterChain, newModel } from "./testing/backend-rig.ts";
import { A, CHAIN, modelWithA, sorted, texts } from "./testing/observations.ts";

test("a restart with nothing changed writes nothing, nor does a full sync", async () => {
  const model = await modelWithA();
  model.set(port("b", "10.96.0.2", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 }), [remote("10.180.0.2")]);
  await model.rig.sync();
  assert.deepEqual(await texts(model.rig, { full: true }), []);
  model.rig.restart();
  assert.deepEqual(await texts(model.rig), []);
});

test("a restart writes what changed meanwhile", async () => {
  const model = await modelWithA();
  const [b, c] = [port("b", "10.96.0.2"), port("c", "10.96.0.3")];
  model.set(b, [local("10.180.0.2")]);
  await model.rig.sync();
  model.rig.restart();
  model.delete(A);
  model.setEndpoints(b, [local("10.180.0.2"), remote("10.180.0.4")]);
  model.set(c);
  assert.deepEqual(await texts(model.rig), [
    `flush-chain ${clusterChain(b)}`,
    `add-rule ${clusterChain(b)}`,
    "delete-elements cluster-ips 10.96.0.1",
    "delete-elements hairpin-connections 10.180.0.1 . 10.180.0.1 . tcp . 8080",
    "delete-elements service-ips 10.96.0.1 . tcp . 80",
    "add-elements cluster-ips 10.96.0.3",
    "add-elements no-endpoint-services 10.96.0.3 . tcp . 80",
    `flush-chain ${CHAIN}`,
    `delete-chain ${CHAIN}`,
  ]);
});

test("a full sync after damage writes the damage only", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const foreign = rig.kernel.connectAnother();
  const clusterIPs = SHARED_SETS.find(({ name }) => name === "cluster-ips") ?? assert.fail();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "services" });
  await foreignInMemory(foreign, { kind: "add-rule", chain: CHAIN });
  await foreignInMemory(foreign, { kind: "delete-element", set: clusterIPs, key: [ip("10.96.0.1")] });
  await foreignInMemory(foreign, { kind: "add-element", set: clusterIPs, key: [ip("10.96.0.9")] });
  await foreignInMemory(foreign, { kind: "add-rule", chain: "service-AAAAAAAA-ns/gone/tcp/" });
  await foreignInMemory(foreign, { kind: "add-rule", chain: "somebody-elses" });
  assert.deepEqual(await texts(rig), [
    `flush-chain ${CHAIN}`,
    "add-rule services",
    "add-rule services",
    "add-rule services",
    `add-rule ${CHAIN}`,
    "delete-elements cluster-ips 10.96.0.9",
    "add-elements cluster-ips 10.96.0.1",
    "flush-chain service-AAAAAAAA-ns/gone/tcp/",
    "delete-chain service-AAAAAAAA-ns/gone/tcp/",
  ]);
  assert.ok((await rig.kernel.connect().read())?.chains.has("somebody-elses"));
});

test("damage to a service's chain is repaired by writing that chain alone", async () => {
  const model = await modelWithA();
  const { rig } = model;
  model.set(port("b", "10.96.0.2"), [remote("10.180.0.2")]);
  await rig.sync();
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "flush-chain", chain: CHAIN });
  assert.deepEqual(rig.lost, [{ ports: new Set([A.name.key]) }]);
  assert.deepEqual(await texts(rig), [`add-chain ${CHAIN}`, `flush-chain ${CHAIN}`, `add-rule ${CHAIN}`]);
  const [warning] = rig.log;
  assert.equal(warning?.message, "Another program changed our nftables rules; repairing them");
  assert.deepEqual([warning.facts.process, warning.facts.chains], ["nft", CHAIN]);
});

test("a second kube-proxy that undoes each repair is named once; warnings of one text come at most every ten seconds", async () => {
  const { rig } = await modelWithA();
  const other = rig.kernel.connectAnother({ pid: 99, name: "kube-proxy" });
  const said = async (times: number): Promise<readonly string[]> => {
    for (let time = 0; time < times; time += 1) {
      await foreignInMemory(other, { kind: "flush-chain", chain: CHAIN });
      assert.equal((await texts(rig)).length, 3, "repaired each time");
    }
    return rig.log.splice(0).map(({ message }) => message);
  };
  const warning = "Another program changed our nftables rules; repairing them";
  const { length: before } = rig.lost;
  assert.deepEqual(await said(30), [
    warning,
    "Another kube-proxy seems to write the same rules on this node; end one of the two",
  ]);
  assert.equal(rig.lost.length - before, 30);
  rig.passTime(10_000);
  assert.deepEqual(await said(2), [warning]);
});

test("damage to what services share is repaired without a look at everything", async () => {
  const { rig } = await modelWithA();
  const foreign = rig.kernel.connectAnother();
  const before = rig.list();
  const serviceIPs = SHARED_SETS.find(({ name }) => name === "service-ips") ?? assert.fail();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "nat-output" });
  await foreignInMemory(foreign, { kind: "delete-chain", chain: "nat-output" });
  await foreignInMemory(foreign, { kind: "delete-element", set: serviceIPs, key: [ip("10.96.0.1"), "tcp", 80] });
  await foreignInMemory(foreign, { kind: "add-element", set: serviceIPs, key: [ip("10.96.0.9"), "tcp", 80] });
  assert.ok(rig.lost.every((lost) => lost?.ports.size === 0));
  rig.kernel.afterNextRead(() => assert.fail("all was read"));
  assert.deepEqual(await texts(rig), [
    "add-chain nat-output",
    "flush-chain nat-output",
    "add-rule nat-output",
    "delete-elements service-ips 10.96.0.9 . tcp . 80",
    "add-elements service-ips 10.96.0.1 . tcp . 80",
  ]);
  assert.deepEqual(sorted(rig.list()), sorted(before));
});

test("an affinity set that others touched is made again with its port", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const endpoint = remote("10.180.0.1");
  model.set(port("a", "10.96.0.1", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 }), [endpoint]);
  await rig.sync();
  const { chain, affinitySet } = endpointNames(A.name, endpoint);
  const before = rig.list();
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "flush-chain", chain });
  await foreignInMemory(foreign, { kind: "flush-chain", chain: CHAIN });
  await foreignInMemory(foreign, {
    kind: "delete-set",
    set: { name: affinitySet, key: ["address"], isMap: false, timeoutSeconds: 100 },
  });
  assert.deepEqual(new Set(rig.lost.flatMap((lost) => [...(lost?.ports ?? ["all"])])), new Set([A.name.key]));
  await rig.sync();
  assert.deepEqual(sorted(rig.list()), sorted(before));
});

test("a shared set that is gone calls for a look at everything", async () => {
  const { rig } = await modelWithA();
  const before = rig.list();
  const nodePortIPs = SHARED_SETS.find(({ name }) => name === "nodeport-ips") ?? assert.fail();
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "services" });
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "nodeport-endpoints-check" });
  await foreignInMemory(foreign, { kind: "delete-set", set: nodePortIPs });
  await rig.sync();
  assert.deepEqual(sorted(rig.list()), sorted(before));
});

test("damage that is done while a sync runs is repaired by the next", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const foreign = rig.kernel.connectAnother();
  const syncing = rig.sync();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: CHAIN });
  await syncing;
  assert.deepEqual(await texts(rig), [`add-chain ${CHAIN}`, `flush-chain ${CHAIN}`, `add-rule ${CHAIN}`]);
});

test("a deleted table is made again", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const before = rig.list();
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "delete-table" });
  assert.deepEqual(rig.lost, [undefined]);
  await rig.sync();
  assert.deepEqual(rig.list(), before);
});

test("the loss of others' chains in the table is not ours", async () => {
  const { rig } = await modelWithA();
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "add-jump", chain: "theirs", to: CHAIN });
  assert.deepEqual([rig.lost, rig.log], [[], []]);
});

test("a watch that broke off is followed by a full sync when it goes on, and leaves nothing behind", async () => {
  const { rig } = await modelWithA();
  const lost: unknown[] = [];
  const { signal } = new AbortController();
  const watch = () =>
    rig.backend.monitor(
      (what) => lost.push(what),
      signal,
      () => {},
    );
  rig.kernel.failWatching(new Error("no buffer space"));
  const watching = watch();
  assert.deepEqual(lost, [undefined]);
  rig.kernel.failWatching(new Error("no buffer space"));
  await assert.rejects(watching, { message: "no buffer space" });
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("a policy that others changed is changed back where it is, and is seen after a restart, too", async () => {
  const { rig } = await modelWithA();
  const before = rig.list();
  const hook = { type: "filter", hook: "forward", priority: 0 } as const;
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "drop-policy", chain: "filter-forward", hook });
  assert.deepEqual(rig.lost, [undefined]);
  assert.deepEqual(await texts(rig), ["add-chain filter-forward"]);
  assert.deepEqual(rig.list(), before);
  rig.close();
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "drop-policy", chain: "filter-forward", hook });
  rig.restart();
  assert.deepEqual(await texts(rig), ["add-chain filter-forward"]);
});

test("a table that was switched off is switched on once its rules are right", async () => {
  const { rig } = await modelWithA();
  const before = rig.list();
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: CHAIN });
  await foreignInMemory(foreign, { kind: "switch-off" });
  assert.deepEqual(await texts(rig), [`add-rule ${CHAIN}`, "add-table"]);
  assert.deepEqual(rig.list(), before);
  assert.equal((await foreign.read())?.isDormant, false);
});

test("an element that catches everything is removed", async () => {
  const { rig } = await modelWithA();
  const noEndpoints = SHARED_SETS.find(({ name }) => name === "no-endpoint-services") ?? assert.fail();
  await foreignInMemory(rig.kernel.connectAnother(), { kind: "add-element", set: noEndpoints, key: [] });
  assert.deepEqual(await texts(rig), ["delete-elements no-endpoint-services "]);
});

test("a chain of a service at a hook calls for the table to be made again", async () => {
  const { rig } = await modelWithA();
  const before = sorted(rig.list());
  const foreign = rig.kernel.connectAnother();
  const serviceIPs = SHARED_SETS.find(({ name }) => name === "service-ips") ?? assert.fail();
  await foreign.transact([
    { kind: "delete-elements", set: serviceIPs, keys: [[ip("10.96.0.1"), "tcp", 80]] },
    { kind: "flush-chain", chain: CHAIN },
    { kind: "delete-chain", chain: CHAIN },
    { kind: "add-chain", chain: { name: CHAIN, hook: { type: "filter", hook: "forward", priority: 5 } } },
  ]);
  assert.deepEqual((await texts(rig)).slice(0, 2), ["delete-table", "add-table"]);
  assert.deepEqual(sorted(rig.list()), before);
});

test("the table of another version is replaced", async () => {
  const { rig } = await modelWithA();
  const before = rig.list();
  const hook = { type: "filter", hook: "input", priority: -5 } as const;
  await rig.kernel
    .connectAnother()
    .transact([
      { kind: "delete-table" },
      { kind: "add-table", comment: "" },
      { kind: "add-chain", chain: { name: "filter-input", hook } },
      { kind: "add-set", set: { name: "service-ips", key: ["address"], isMap: false } },
    ]);
  assert.deepEqual((await texts(rig)).slice(0, 2), ["delete-table", "add-table"]);
  assert.deepEqual(rig.list(), before);
});

test("a full sync starts again when another program changes the ruleset meanwhile", async () => {
  const { rig } = await modelWithA();
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: CHAIN });
  rig.kernel.afterNextRead(() => foreignInMemory(foreign, { kind: "flush-chain", chain: "services" }));
  const operations = await texts(rig, { full: true });
  assert.deepEqual(operations, [
    "flush-chain services", // the foreign one
    "add-rule services",
    "add-rule services",
    "add-rule services",
    `add-rule ${CHAIN}`,
  ]);
  assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
});

test("a ruleset that never stops changing fails the sync, and the next is full", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const foreign = rig.kernel.connectAnother();
  await foreignInMemory(foreign, { kind: "flush-chain", chain: CHAIN });
  const change = async (): Promise<void> => {
    rig.kernel.afterNextRead(change);
    await foreignInMemory(foreign, { kind: "add-rule", chain: "theirs" });
  };
  rig.kernel.afterNextRead(change);
  await assert.rejects(rig.sync({ full: true }), { code: "conflict" });
  assert.equal(rig.metrics.syncFailures, 1);
});

test("without permission the sync fails, and memory is not trusted afterwards", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const b = port("b", "10.96.0.2");
  model.set(b, [local("10.180.0.2")]);
  rig.kernel.failOnce(new NftError("denied", "no CAP_NET_ADMIN", undefined));
  await assert.rejects(rig.sync(), { code: "denied" });
  assert.equal((await rig.operationsOf()).length, 5);
});

test("a table that others have touched is read at the end of the period, and once", async () => {
  const { rig } = await modelWithA();
  const foreign = rig.kernel.connectAnother();
  let reads = 0;
  const isRead = async (): Promise<boolean> => {
    const before = reads;
    rig.kernel.afterNextRead(async () => void reads++);
    if (rig.driver.isSyncDue) assert.deepEqual(await texts(rig), []);
    return reads > before;
  };
  await rig.endPeriod();
  assert.equal(await isRead(), false, "nobody was there");
  await foreignInMemory(foreign, { kind: "add-rule", chain: "theirs" });
  assert.equal(await isRead(), true, "a chain may be one of ours with another name");
  await rig.endPeriod();
  assert.equal(await isRead(), false);
  await foreignInMemory(foreign, { kind: "flush-chain", chain: "theirs" });
  assert.equal(await isRead(), false);
  await rig.endPeriod();
  assert.equal(await isRead(), true);
  await rig.endPeriod();
  assert.equal(await isRead(), false);
  assert.deepEqual([rig.lost, rig.log], [[], []]);
});

test("what a look has repaired is not repaired again, whenever it is announced", async () => {
  for (let turns = 0; turns <= 40; turns += 1) {
    const { rig } = await modelWithA();
    const announce = rig.kernel.holdAnnouncements();
    await foreignInMemory(rig.kernel.connectAnother(), { kind: "flush-chain", chain: CHAIN });
    await rig.endPeriod();
    const looked = texts(rig);
    for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
    announce();
    assert.notDeepEqual(await looked, []);
    assert.deepEqual(await texts(rig), [], `announced after ${turns} turns`);
    assert.ok(
      rig.log.some(({ facts }) => JSON.stringify(facts)?.includes(CHAIN)),
      "it is named",
    );
  }
});

test("chains that could not be deleted because others were renamed go with the look that puts these right", async () => {
  const model = newModel();
  const { rig } = model;
  const a = port("a", "10.96.0.1", { externalIPs: [ip("198.51.100.1")] });
  const { external } = servicePortChains(a.name);
  await rig.sync();
  const empty = sorted(rig.list());
  model.set(a, [local("10.180.0.1")]);
  await rig.sync();
  const announce = rig.kernel.holdAnnouncements();
  rig.kernel.renameChain(external, "others");
  rig.kernel.renameChain("services", external);
  rig.kernel.renameChain("others", "services");
  model.delete(a);
  await rig.sync();
  announce();
  await rig.endPeriod();
  await rig.sync();
  assert.deepEqual(sorted(rig.list()), empty);
});

test("what another program damages while the table is read is repaired once", async () => {
  const kernel = new MemoryNftKernel("ip");
  const foreign = kernel.connectAnother();
  let before = async (): Promise<void> => {};
  const connect = () => {
    const nft = kernel.connect();
    return { ...nft, read: (expected?: NftExpectation) => before().then(() => nft.read(expected)) };
  };
  const model = newModel({ connect });
  model.set(A, [local("10.180.0.1")]);
  await model.rig.sync();
  const made = sorted(kernel.list());
  before = () => foreignInMemory(foreign, { kind: "flush-chain", chain: CHAIN });
  await model.rig.sync({ full: true });
  assert.deepEqual(sorted(kernel.list()), made);
  kernel.takeOperations();
  await model.rig.sync();
  assert.deepEqual(kernel.takeOperations(), []);
});

test("what goes to a chain that was renamed goes to ours again, and the other is gone", async () => {
  for (const chain of ["services", "nat-prerouting", CHAIN]) {
    const { rig } = await modelWithA();
    const before = rig.list();
    rig.kernel.renameChain(chain, "evil");
    await rig.sync();
    assert.deepEqual(sorted(rig.list()), sorted(before));
    assert.deepEqual(
      rig.log.map(({ message }) => message),
      ["Another program changed our nftables rules; they have been repaired"],
    );
    assert.deepEqual(rig.lost, [{ ports: new Set() }], "it counts");
  }
});
