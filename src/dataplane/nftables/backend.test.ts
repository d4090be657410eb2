import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { foreignInMemory } from "../../kernel/nftables/testing/foreign-hand.ts";
import { ip } from "../../model/testing/records.ts";
import { SHARED_SETS } from "./compatible/plan-static.ts";
import { endpointNames, servicePortChains } from "./names.ts";
import { type BackendRig, clusterChain, newModel, operationText, type TestModel } from "./testing/backend-rig.ts";

async function texts(rig: BackendRig, options?: { readonly full?: boolean }): Promise<string[]> {
  return (await rig.operationsOf(options)).map(operationText);
}

async function elementsOf({ kernel }: BackendRig, set: string): Promise<Map<string, NftElement>> {
  const content = await kernel.connectAnother().read();
  return new Map((content?.sets.get(set)?.elements ?? []).map((element) => [elementKey(element.key), element]));
}

async function chainsOf({ kernel }: BackendRig): Promise<string[]> {
  const content = await kernel.connectAnother().read();
  return [...(content?.chains.keys() ?? [])].filter((name) => name.includes("/")).sort();
}

/** Objects in an order that does not depend on when they were made. */
function sorted(objects: readonly unknown[]): string[] {
  return objects.map((object) => JSON.stringify(object)).sort();
}

const A = port("a", "10.96.0.1");
const CHAIN = clusterChain(A);

/** A synced model with one service `ns/a:p` and one local endpoint. */
async function modelWithA(): Promise<TestModel> {
  const model = newModel();
  model.set(A, [local("10.180.0.1")]);
  await model.rig.sync();
  return model;
}

test("the first sync makes everything in one transaction", async () => {
  const model = newModel();
  model.set(A, [local("10.180.0.1")]);
  await model.rig.sync();
  assert.equal(model.rig.kernel.transactions.length, 1);
  const kinds = Map.groupBy(model.rig.kernel.transactions[0] ?? [], ({ kind }) => kind);
  const counts = Object.fromEntries([...kinds].map(([kind, list]) => [kind, list.length]));
  // 8 base chains, 7 fixed ones, 1 of the service; 11 jumps, 10 fixed rules (no ServiceCIDR), 1 of the service.
  assert.deepEqual(counts, { "add-table": 1, "add-set": 8, "add-chain": 16, "add-rule": 22, "add-elements": 3 });
});

test("many new services are made in portions, and come into force in one transaction", async () => {
  const model = newModel({ portsAtOnce: 2 });
  const { rig } = model;
  for (let n = 1; n <= 5; n += 1) model.set(port(`s${n}`, `10.96.0.${n}`), [remote(`10.180.0.${n}`)]);
  await rig.sync();
  const kinds = rig.kernel.transactions.map((operations) => [...new Set(operations.map(({ kind }) => kind))]);
  const portion = ["add-table", "add-set", "add-chain", "add-rule"];
  assert.deepEqual(kinds, [portion, portion, portion, ["add-chain", "add-rule", "add-elements"]]);
  const whole = newModel();
  for (let n = 1; n <= 5; n += 1) whole.set(port(`s${n}`, `10.96.0.${n}`), [remote(`10.180.0.${n}`)]);
  await whole.rig.sync();
  assert.deepEqual(sorted(rig.list()), sorted(whole.rig.list()));
});

test("what is refused while services are made in portions is left out, and the others are there", async () => {
  const model = newModel({ portsAtOnce: 2 });
  const { rig } = model;
  const ports = [1, 2, 3, 4, 5].map((n) => port(`s${n}`, `10.96.0.${n}`));
  const bad = clusterChain(ports[2] ?? assert.fail());
  rig.kernel.refuse((operation) =>
    operation.kind === "add-rule" && operation.chain === bad ? { code: "unsupported" } : undefined,
  );
  for (const one of ports) model.set(one, [remote("10.180.0.1")]);
  const { failures } = await rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["ns/s3:p"],
  );
  assert.deepEqual(
    await chainsOf(rig),
    ports
      .map(clusterChain)
      .filter((chain) => chain !== bad)
      .sort(),
  );
  assert.equal((await elementsOf(rig, "service-ips")).size, 4);
});

test("adding a service with a local endpoint costs 5 operations", async () => {
  const model = await modelWithA();
  const b = port("b", "10.96.0.2");
  model.set(b, [local("10.180.0.2")]);
  assert.deepEqual(await texts(model.rig), [
    `add-chain ${clusterChain(b)}`,
    `add-rule ${clusterChain(b)}`,
    "add-elements hairpin-connections 10.180.0.2 . 10.180.0.2 . tcp . 8080",
    "add-elements cluster-ips 10.96.0.2",
    "add-elements service-ips 10.96.0.2 . tcp . 80",
  ]);
});

test("deleting a service costs 5 operations, chain included", async () => {
  const model = await modelWithA();
  model.delete(A);
  assert.deepEqual(await texts(model.rig), [
    "delete-elements hairpin-connections 10.180.0.1 . 10.180.0.1 . tcp . 8080",
    "delete-elements cluster-ips 10.96.0.1",
    "delete-elements service-ips 10.96.0.1 . tcp . 80",
    `flush-chain ${CHAIN}`,
    `delete-chain ${CHAIN}`,
  ]);
});

test("each change of endpoints costs what it changes", async () => {
  const model = newModel();
  const { rig } = model;
  await rig.sync();
  model.set(A);
  const count = async () => (await rig.operationsOf()).length;
  assert.equal(await count(), 2, "a service without endpoints: cluster-ips, no-endpoint-services");
  model.setEndpoints(A, [local("10.180.0.1")]);
  assert.equal(await count(), 5, "its first: chain, rule, hairpin, no-endpoint → service-ips");
  model.setEndpoints(A, [local("10.180.0.2")]);
  assert.equal(await count(), 4, "replaced: flush, rule, hairpin twice");
  model.setEndpoints(A, [local("10.180.0.2"), local("10.180.0.3")]);
  assert.equal(await count(), 3, "added: flush, rule, hairpin");
  model.setEndpoints(A, [local("10.180.0.2"), remote("10.180.0.4")]);
  assert.equal(await count(), 3, "one replaced by a remote one: flush, rule, hairpin");
  model.setEndpoints(A, []);
  assert.equal(await count(), 5, "emptied: hairpin, service-ips → no-endpoint, flush, delete");
  model.setEndpoints(A, [local("10.180.0.2")]);
  assert.equal(await count(), 5, "restored");
  model.rig.driver.touch([A.name.key]);
  assert.equal(await count(), 0, "touched, but the same");
});

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
    "delete-elements hairpin-connections 10.180.0.1 . 10.180.0.1 . tcp . 8080",
    "delete-elements cluster-ips 10.96.0.1",
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

test("a watch that broke off is followed by a full sync when it goes on", async () => {
  const { rig } = await modelWithA();
  const lost: unknown[] = [];
  const watch = () => rig.backend.monitor((what) => lost.push(what), new AbortController().signal);
  rig.kernel.failWatching(new Error("no buffer space"));
  const watching = watch();
  assert.deepEqual(lost, [undefined]);
  rig.kernel.failWatching(new Error("no buffer space"));
  await assert.rejects(watching, { message: "no buffer space" });
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

test("match-all node ports and listed addresses change into each other", async () => {
  const { rig } = await modelWithA();
  const start = rig.list();
  rig.node.nodePortIPs = { kind: "ips", ips: [ip("192.168.0.2"), ip("192.168.0.3")] };
  assert.deepEqual(await texts(rig, { full: true }), ["add-elements nodeport-ips 192.168.0.2, 192.168.0.3"]);
  rig.node.nodePortIPs = { kind: "all" };
  assert.deepEqual(await texts(rig, { full: true }), [
    "flush-chain nodeport-endpoints-check",
    "flush-chain services",
    "add-rule nodeport-endpoints-check",
    "add-rule services",
    "add-rule services",
    "add-rule services",
    "delete-set nodeport-ips",
  ]);
  rig.node.nodePortIPs = { kind: "ips", ips: [] };
  await rig.sync({ full: true });
  assert.deepEqual(sorted(rig.list()), sorted(start));
});

test("node-port addresses that cannot be read leave the set empty", async () => {
  const { rig } = await modelWithA();
  rig.node.nodePortIPs = { kind: "ips", ips: [ip("192.168.0.2")] };
  await rig.sync({ full: true });
  rig.node.nodePortIPs = undefined;
  assert.deepEqual(await texts(rig, { full: true }), ["delete-elements nodeport-ips 192.168.0.2"]);
});

test("ServiceCIDRs of the family are taken over, in any order", async () => {
  const { rig } = await modelWithA();
  rig.driver.serviceCIDRs = ["10.96.0.0/16", "fd00:96::/108", "10.112.0.0/16"];
  const rewritten = ["flush-chain cluster-ips-check", "add-rule cluster-ips-check"];
  assert.deepEqual(await texts(rig, { full: true }), [...rewritten, "add-rule cluster-ips-check"]);
  rig.driver.serviceCIDRs = ["10.112.0.0/16", "10.96.0.0/16"];
  assert.deepEqual(await texts(rig, { full: true }), []);
  rig.driver.serviceCIDRs = [];
  assert.deepEqual(await texts(rig, { full: true }), rewritten);
});

test("clients keep their endpoints through full syncs, restarts and another timeout", async () => {
  const model = newModel();
  const { rig } = model;
  const sticky = (stickyMaxAgeSeconds: number) =>
    port("a", "10.96.0.1", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds });
  const endpoint = remote("10.180.0.1");
  const { affinitySet, chain } = endpointNames(A.name, endpoint);
  model.set(sticky(100), [endpoint, remote("10.180.0.2")]);
  await rig.sync();
  rig.kernel.putPacketEntry(affinitySet, "192.0.2.1");
  await rig.sync({ full: true });
  rig.restart();
  await rig.sync();
  assert.deepEqual(rig.kernel.packetEntries(affinitySet), ["192.0.2.1"]);
  model.set(sticky(200));
  assert.deepEqual(
    (await texts(rig)).filter((text) => !text.startsWith("add-set affinity-")),
    [],
  );
  const content = await rig.kernel.connect().read();
  assert.equal(content?.sets.get(affinitySet)?.timeoutSeconds, 200);
  assert.deepEqual(rig.kernel.packetEntries(affinitySet), ["192.0.2.1"]);
  model.setEndpoints(A, [remote("10.180.0.2")]);
  assert.deepEqual((await texts(rig)).slice(-3), [
    `flush-chain ${chain}`,
    `delete-chain ${chain}`,
    `delete-set ${affinitySet}`,
  ]);
});

test("of services with one external IP the first by name answers, in any order of events", async () => {
  const external = (name: string, clusterIP: string) =>
    port(name, clusterIP, { externalIPs: [ip("198.51.100.1")], isExternallyAccessible: true });
  const ports = [external("a", "10.96.0.1"), external("b", "10.96.0.2"), external("c", "10.96.0.3")];
  const key = "198.51.100.1 . tcp . 80";
  const orders = [
    [0, 1, 2],
    [2, 1, 0],
    [1, 2, 0],
  ];
  for (const order of orders) {
    const model = newModel();
    await model.rig.sync();
    const winner = async () => (await elementsOf(model.rig, "service-ips")).get(key)?.verdict;
    for (const index of order) {
      const one = ports[index] ?? assert.fail();
      model.set(one, [remote(`10.180.0.${index}`)]);
      await model.rig.sync();
    }
    for (const one of ports) {
      assert.deepEqual(await winner(), { kind: "goto", chain: servicePortChains(one.name).external });
      model.delete(one);
      await model.rig.sync();
    }
    assert.equal(await winner(), undefined);
  }
});

test("an external IP does not take another service's cluster IP, even where that has no endpoints", async () => {
  const model = newModel();
  const key = "10.96.0.2 . tcp . 80";
  const taker = port("a", "10.96.0.1", { externalIPs: [ip("10.96.0.2")], isExternallyAccessible: true });
  const victim = port("b", "10.96.0.2");
  model.set(taker, [remote("10.180.0.1")]);
  await model.rig.sync();
  const verdict = async (set: string) => (await elementsOf(model.rig, set)).get(key)?.verdict;
  assert.deepEqual(await verdict("service-ips"), { kind: "goto", chain: servicePortChains(taker.name).external });
  model.set(victim);
  await model.rig.sync();
  assert.equal(await verdict("service-ips"), undefined);
  assert.deepEqual(await verdict("no-endpoint-services"), { kind: "goto", chain: "reject-chain" });
  model.setEndpoints(victim, [remote("10.180.0.2")]);
  await model.rig.sync();
  assert.deepEqual(await verdict("service-ips"), { kind: "goto", chain: clusterChain(victim) });
});

test("an address changes hands within one transaction", async () => {
  const model = await modelWithA();
  const b = port("b", "10.96.0.1");
  model.delete(A);
  model.set(b, [local("10.180.0.1")]);
  assert.deepEqual(await texts(model.rig), [
    `add-chain ${clusterChain(b)}`,
    `add-rule ${clusterChain(b)}`,
    "delete-elements service-ips 10.96.0.1 . tcp . 80",
    "add-elements service-ips 10.96.0.1 . tcp . 80",
    `flush-chain ${CHAIN}`,
    `delete-chain ${CHAIN}`,
  ]);
  assert.deepEqual(await chainsOf(model.rig), [clusterChain(b)]);
});

test("services with a Local policy and no local endpoint are counted", async () => {
  const model = newModel();
  model.set(port("a", "10.96.0.1", { internalPolicyLocal: true }), [remote("10.180.0.1")]);
  model.set(port("b", "10.96.0.2", { externalPolicyLocal: true, isExternallyAccessible: true, nodePort: 30000 }), [
    remote("10.180.0.1"),
  ]);
  assert.deepEqual((await model.rig.sync()).noLocalEndpoints, { internal: 1, external: 1 });
  model.setEndpoints(A, [local("10.180.0.2")]);
  assert.deepEqual((await model.rig.sync()).noLocalEndpoints, { internal: 0, external: 1 });
});
