/** Chains that are made before the first sync, while lists arrive. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { MemoryNftKernel } from "../../../testkit/fakes/nftables/memory-nftables.ts";
import { type Nftables, NftError } from "../../kernel/nftables/nftables.ts";
import { foreignInMemory } from "../../kernel/nftables/testing/foreign-hand.ts";
import { TABLE } from "./names.ts";
import { clusterChain, newModel, operationText, type TestModel } from "./testing/backend-rig.ts";
import { chainsOf, sorted, texts } from "./testing/observations.ts";

const PORTS = Array.from({ length: 5 }, (_, index) => port(`s${index}`, `10.96.0.${index + 1}`));
const CHAINS = PORTS.map(clusterChain);
const KEYS = new Set(PORTS.map(({ name }) => name.key));
const [FIRST = assert.fail(), SECOND = assert.fail()] = PORTS;
const [FIRST_CHAIN = "", SECOND_CHAIN = ""] = CHAINS;

/** A model with five service ports, and a kernel without a table. */
function fiveServices(options?: Parameters<typeof newModel>[0]): TestModel {
  const model = newModel({ portsAtOnce: 2, ...options });
  for (const [index, one] of PORTS.entries()) model.set(one, [local(`10.180.0.${index + 1}`)]);
  return model;
}

/** Objects and elements in an order that does not depend on when they were made. */
function inOrder(objects: readonly unknown[]): string[] {
  const sortLists = (_key: string, value: unknown) => (Array.isArray(value) ? sorted(value) : value);
  return objects.map((object) => JSON.stringify(object, sortLists)).sort();
}

async function assertAsFromNothing({ rig }: TestModel): Promise<void> {
  const fresh = await rig.fromNothing();
  assert.deepEqual(inOrder(rig.list()), inOrder(fresh.list()));
}

test("the first sync takes over the chains that were made before it, without a look at the table", async () => {
  const model = fiveServices();
  const { rig } = model;
  await rig.prepare(new Set([FIRST.name.key]));
  await rig.prepare(KEYS);
  let reads = 0;
  rig.kernel.afterNextRead(async () => void reads++);
  const operations = await texts(rig);
  assert.deepEqual(
    operations.filter((text) => CHAINS.some((chain) => text.endsWith(` ${chain}`)) || text.includes("-elements")),
    [],
  );
  assert.equal(reads, 0);
  await assertAsFromNothing(model);
  assert.deepEqual(await texts(rig, { full: true }), []);
});

test("no rule looks at the chains and elements before the sync", async () => {
  const { rig } = fiveServices();
  await rig.prepare(KEYS);
  const content = await rig.kernel.connectAnother().read();
  // None has a hook: no packet comes here.
  assert.deepEqual([...(content?.chains.keys() ?? [])].toSorted(), CHAINS.toSorted());
  const verdicts = [...(content?.sets ?? [])].flatMap(([set, { elements }]) =>
    elements.flatMap(({ verdict }) => (verdict === undefined ? [] : [[set, "chain" in verdict && verdict.chain]])),
  );
  assert.deepEqual(
    verdicts.toSorted(),
    CHAINS.toSorted().map((chain) => ["service-ips", chain]),
  );
});

test("an element that leads to a chain of no service port waits for the sync", async () => {
  const model = fiveServices();
  const refusing = port("refusing", "10.96.1.1");
  model.set(refusing, [remote("10.180.1.1", { isReady: false, isServing: false })]);
  await model.rig.prepare(new Set([...KEYS, refusing.name.key]));
  const content = await model.rig.kernel.connectAnother().read();
  assert.deepEqual(content?.sets.get("no-endpoint-services")?.elements, []);
  await model.rig.sync();
  await assertAsFromNothing(model);
});

test("of two service ports that want one address, the sync decides", async () => {
  for (const names of [
    ["a", "b"],
    ["b", "a"],
  ]) {
    const model = fiveServices();
    for (const name of names) {
      const one = port(name, "10.96.1.1");
      model.set(one, [local("10.180.1.1")]);
      await model.rig.prepare(new Set([...KEYS, one.name.key]));
    }
    await model.rig.sync();
    await assertAsFromNothing(model);
  }
});

test("what has become different meanwhile is written by the sync, and what is gone goes", async () => {
  const model = fiveServices();
  const { rig } = model;
  await rig.prepare(KEYS);
  model.setEndpoints(FIRST, [local("10.180.0.1"), remote("10.180.0.9")]);
  model.delete(SECOND);
  await rig.prepare(new Set([FIRST.name.key, SECOND.name.key]));
  const operations = await texts(rig);
  assert.deepEqual(
    operations.filter((text) => text.endsWith(FIRST_CHAIN)),
    [`flush-chain ${FIRST_CHAIN}`, `add-rule ${FIRST_CHAIN}`],
  );
  assert.deepEqual(operations.filter((text) => text.endsWith(SECOND_CHAIN)).at(-1), `delete-chain ${SECOND_CHAIN}`);
  await assertAsFromNothing(model);
});

test("plans of another zone are not used", async () => {
  const model = fiveServices();
  const { rig } = model;
  const hints = { zoneHints: ["z"] };
  model.setEndpoints(FIRST, [remote("10.180.0.1", hints), remote("10.180.0.2", { zoneHints: ["y"] })]);
  await rig.prepare(KEYS);
  model.driver.zone = "z";
  await rig.sync();
  await assertAsFromNothing(model);
});

test("a table that is there is left alone until the sync", async () => {
  const { rig } = fiveServices();
  await rig.sync();
  rig.restart();
  rig.kernel.takeOperations();
  await rig.prepare(KEYS);
  assert.deepEqual(await texts(rig), []);
});

test("the flat layout has nothing to prepare", async () => {
  const { rig } = fiveServices({ layout: "Flat" });
  await rig.prepare(KEYS);
  assert.deepEqual(rig.kernel.takeOperations(), []);
});

test("after another program's commit the table is read", async () => {
  for (const change of [{ kind: "flush-chain", chain: FIRST_CHAIN }, { kind: "delete-table" }] as const) {
    const model = fiveServices();
    await model.rig.prepare(KEYS);
    await foreignInMemory(model.rig.kernel.connectAnother(), change);
    await model.rig.sync();
    await assertAsFromNothing(model);
  }
});

test("what is left for the sync is worked out while the kernel makes the chains, and sent after them", async () => {
  const kernel = new MemoryNftKernel("ip");
  const { promise: made, resolve: make } = Promise.withResolvers<void>();
  const { promise: ready, resolve: begin } = Promise.withResolvers<void>();
  const connect = (): Nftables => {
    const nft = kernel.connect();
    return {
      ...nft,
      async transact(operations, { generation, ...options } = {}) {
        if (typeof generation !== "function") await made;
        const asked = (): Promise<number> => {
          begin();
          return typeof generation === "function" ? generation() : assert.fail();
        };
        await nft.transact(operations, { ...options, ...(generation && { generation: asked }) });
      },
    };
  };
  const model = fiveServices({ connect });
  const { rig } = model;
  await rig.driver.prepare(rig.backend, KEYS, new AbortController().signal);
  const syncing = rig.sync();
  await ready;
  assert.equal(await kernel.connectAnother().read(), undefined);
  make();
  const { written } = await syncing;
  assert.deepEqual(inOrder(kernel.list(TABLE)), inOrder((await rig.fromNothing()).list()));
  const chains = (await kernel.connectAnother().read())?.chains.size;
  assert.equal(written?.counts["add chain"], chains);
});

test("what the kernel refuses is left to the sync, which names it", async () => {
  const model = fiveServices();
  const { rig } = model;
  const heal = rig.kernel.refuse((operation) =>
    operation.kind === "add-rule" && operation.chain === FIRST_CHAIN ? { code: "unsupported" } : undefined,
  );
  await rig.prepare(KEYS);
  const { failures } = await rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    [FIRST.name.text],
  );
  assert.ok((await chainsOf(rig)).includes(SECOND_CHAIN));
  heal();
  await rig.sync();
  await assertAsFromNothing(model);
});

test("an error of the first hour is not the sync's", async () => {
  const model = fiveServices();
  model.rig.kernel.failOnce(new NftError("failed", "out of memory", undefined));
  await model.rig.prepare(KEYS);
  assert.deepEqual((await model.rig.sync()).failures, []);
  await assertAsFromNothing(model);
});

test("a process that is killed after that leaves what the next one can go on from", async () => {
  const model = fiveServices();
  const { rig } = model;
  await rig.prepare(new Set([FIRST.name.key, SECOND.name.key]));
  const made = rig.kernel.takeOperations().map(operationText);
  assert.ok(made.includes(`add-rule ${FIRST_CHAIN}`));
  rig.restart();
  await rig.prepare(KEYS);
  const operations = await texts(rig);
  assert.ok(!operations.includes(`add-rule ${FIRST_CHAIN}`));
  await assertAsFromNothing(model);
});
