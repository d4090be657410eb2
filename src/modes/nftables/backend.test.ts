import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { MemoryNftKernel } from "../../../testkit/fakes/nftables/memory-nftables.ts";
import type { Nftables } from "../../kernel/nftables/nftables.ts";
import { ip } from "../../model/testing/records.ts";
import { endpointNames, servicePortChains } from "./names.ts";
import { clusterChain, newModel } from "./testing/backend-rig.ts";
import { A, CHAIN, chainsOf, elementsOf, modelWithA, sorted, texts } from "./testing/observations.ts";

/** The same handle, with a callback for reads of the table. */
function counted(nft: Nftables, onRead: () => void): Nftables {
  return {
    ...nft,
    read: () => {
      onRead();
      return nft.read();
    },
  };
}

test("the first sync makes everything in one transaction", async () => {
  const model = newModel();
  model.set(A, [local("10.180.0.1")]);
  await model.rig.sync();
  assert.equal(model.rig.kernel.transactions.length, 1);
  const kinds = Map.groupBy(model.rig.kernel.transactions[0] ?? [], ({ kind }) => kind);
  const counts = Object.fromEntries([...kinds].map(([kind, list]) => [kind, list.length]));
  // 8 base chains, 7 fixed ones, 1 of the Service; 11 jumps, 10 fixed rules (no ServiceCIDR), 1 of the Service.
  assert.deepEqual(counts, { "add-table": 1, "add-set": 8, "add-chain": 16, "add-rule": 22, "add-elements": 3 });
});

test("many new services are made in portions, and come into force in one transaction", async () => {
  const model = newModel({ portsAtOnce: 2 });
  const { rig } = model;
  for (let n = 1; n <= 5; n += 1) model.set(port(`s${n}`, `10.96.0.${n}`), [remote(`10.180.0.${n}`)]);
  await rig.sync();
  const kinds = rig.kernel.transactions.map((operations) => [...new Set(operations.map(({ kind }) => kind))]);
  const portion = ["add-table", "add-set", "add-chain", "add-rule", "add-elements"];
  // No rule used the elements before.
  assert.deepEqual(kinds, [portion, portion, portion, ["add-chain", "add-rule"]]);
  const whole = newModel();
  for (let n = 1; n <= 5; n += 1) whole.set(port(`s${n}`, `10.96.0.${n}`), [remote(`10.180.0.${n}`)]);
  await whole.rig.sync();
  assert.deepEqual(sorted(rig.list()), sorted(whole.rig.list()));
});

test("after portions the table is read again only when another program was there", async () => {
  const readsWith = async (meddle: (kernel: MemoryNftKernel) => void): Promise<number> => {
    const kernel = new MemoryNftKernel("ip");
    let reads = 0;
    const model = newModel({ portsAtOnce: 2, connect: () => counted(kernel.connect(), () => reads++) });
    for (let n = 1; n <= 5; n += 1) model.set(port(`s${n}`, `10.96.0.${n}`), [remote(`10.180.0.${n}`)]);
    meddle(kernel);
    await model.rig.sync();
    const first = reads;
    kernel.takeOperations();
    await model.rig.sync({ full: true });
    assert.deepEqual(kernel.takeOperations(), []);
    return first;
  };
  assert.equal(await readsWith(() => {}), 1);
  const [first, last] = ["s1", "s5"].map((name) => clusterChain(port(name, `10.96.0.${name.slice(1)}`)));
  const meddled = await readsWith((kernel) => {
    let isDone = false;
    kernel.refuse((operation) => {
      if (operation.kind !== "add-chain" || operation.chain.name !== last || isDone) return undefined;
      isDone = true;
      const flush = { kind: "flush-chain", chain: first ?? assert.fail() } as const;
      queueMicrotask(() => void kernel.connectAnother().transact([flush]));
      return undefined;
    });
  });
  assert.ok(meddled > 1);
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

test("node ports stay at the addresses that are known while these cannot be read, and that is named until they can", async () => {
  const model = await modelWithA();
  const { rig } = model;
  const subjects = async (options?: { full: boolean }) =>
    (await rig.sync(options)).failures.map(({ subject }) => subject);
  rig.node.nodePortIPs = { kind: "ips", ips: [ip("192.168.0.2")] };
  await rig.sync({ full: true });
  rig.node.nodePortIPs = undefined;
  rig.kernel.takeOperations();
  assert.deepEqual(await subjects({ full: true }), ["node ports"]);
  assert.deepEqual(rig.kernel.takeOperations(), []);
  assert.deepEqual(await subjects(), ["node ports"], "nothing has read them since");
  rig.node.nodePortIPs = { kind: "ips", ips: [ip("192.168.0.3")] };
  assert.deepEqual(await subjects({ full: true }), []);
});

test("addresses that cannot be read are asked for again after each sync period, however often that fails", async () => {
  const { rig } = await modelWithA();
  rig.node.nodePortIPs = undefined;
  await rig.sync({ full: true });
  for (let period = 1; period <= 3; period += 1) {
    await rig.endPeriod();
    assert.ok(rig.driver.isSyncDue, `period ${period}`);
    assert.equal((await rig.sync()).failures.length, 1);
  }
  await rig.endPeriod();
  rig.node.nodePortIPs = { kind: "ips", ips: [ip("192.168.0.2")] };
  assert.deepEqual(await texts(rig), ["add-elements nodeport-ips 192.168.0.2"]);
  await rig.endPeriod();
  assert.ok(!rig.driver.isSyncDue);
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

test("what a sync has written is counted, in the words of nft, and once", async () => {
  const model = newModel();
  model.set(port("a", "10.96.0.1"), [remote("10.180.0.1")]);
  await model.rig.sync();
  model.setEndpoints(A, [remote("10.180.0.1"), local("10.180.0.2")]);
  const { counts, kernelMs } = (await model.rig.sync()).written ?? {};
  assert.deepEqual(counts, { "add rule": 1, "flush chain": 1, "add element": 1 });
  assert.equal(typeof kernelMs, "number");
  assert.deepEqual((await model.rig.sync()).written?.counts, {});
});
