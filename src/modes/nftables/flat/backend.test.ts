/** The flat layout through the backend, on a kernel in memory: docs/reference/flat-nftables.md. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote } from "../../../../testkit/dataplane/test-cluster.ts";
import { MemoryNftKernel } from "../../../../testkit/fakes/nftables/memory-nftables.ts";
import type { NftOperation } from "../../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../../kernel/nftables/ruleset.ts";
import { ip } from "../../../model/testing/records.ts";
import { type BackendRig, newModel, operationText, type TestModel } from "../testing/backend-rig.ts";

const A = port("a", "10.96.0.1");
const STICKY = port("s", "10.96.0.2", {
  sessionAffinity: "ClientIP",
  stickyMaxAgeSeconds: 600,
  nodePort: 30080,
});

async function modelWith(count: number): Promise<TestModel> {
  const model = newModel({ layout: "Flat" });
  model.set(A, remotes(count));
  await model.rig.sync();
  return model;
}

function remotes(count: number) {
  return Array.from({ length: count }, (_, n) => remote(`10.180.${n >> 8}.${(n & 255) + 1}`));
}

const texts = async (rig: BackendRig, options?: { readonly full?: boolean }): Promise<string[]> =>
  (await rig.operationsOf(options)).map(operationText);

const isAboutRules = ({ kind }: NftOperation): boolean => !kind.endsWith("-elements");

async function endpointsOf({ kernel }: BackendRig, set: string): Promise<string[]> {
  const elements = (await kernel.connectAnother().read())?.sets.get(set)?.elements ?? [];
  return elements.map(({ key, target }) => `${elementKey(key)} → ${target?.ip}`).sort();
}

test("a replaced endpoint is one element, and a new service of a size that there is brings no rule", async () => {
  const model = await modelWith(2);
  model.setEndpoints(A, [remote("10.180.0.1"), remote("10.180.0.9")]);
  assert.deepEqual(await texts(model.rig), [
    "delete-elements endpoints-2 10.96.0.1 . tcp . 80 . 0",
    "add-elements endpoints-2 10.96.0.1 . tcp . 80 . 0",
  ]);
  model.set(port("b", "10.96.0.3"), [local("10.180.0.7"), remote("10.180.0.8")]);
  assert.deepEqual((await model.rig.operationsOf()).filter(isAboutRules), []);
});

test("another number of endpoints is one transaction, with the map and the rule that it needs", async () => {
  const model = await modelWith(2);
  model.setEndpoints(A, remotes(3));
  const operations = await texts(model.rig);
  assert.equal(model.rig.kernel.transactions.length, 0, "taken");
  const at = (text: string): number => operations.findIndex((operation) => operation.startsWith(text));
  assert.ok(at("add-set endpoints-3") >= 0 && at("add-set endpoints-3") < at("add-rule frontend-endpoints"));
  assert.ok(at("delete-elements endpoints-2") < at("add-elements endpoints-3"));
  assert.deepEqual(operations.slice(-2), ["delete-set endpoints-2", "delete-chain pick-endpoints-2"]);
  assert.deepEqual((await endpointsOf(model.rig, "endpoints-3")).length, 3);
});

test("the first and the last of a size or timeout write no rule that looks into a map of others", async () => {
  const model = newModel({ layout: "Flat" });
  const sticky = (seconds: number) => ({ sessionAffinity: "ClientIP", stickyMaxAgeSeconds: seconds }) as const;
  for (const count of [2, 5])
    model.set(port(`s${count}`, `10.96.1.${count}`, { nodePort: 30000 + count }), remotes(count));
  model.set(port("sticky", "10.96.1.9", sticky(60)), remotes(2));
  await model.rig.sync();
  const looksInto = async (change: () => void): Promise<string[]> => {
    change();
    const written = (await model.rig.operationsOf()).flatMap((operation) =>
      operation.kind === "add-rule" ? operation.rule.statements : [],
    );
    const maps = written.flatMap((one) => (one.kind === "map-dnat" || one.kind === "update-map" ? [one.map] : []));
    return [...new Set(maps)].sort();
  };
  const other = port("other", "10.96.1.1", { nodePort: 30001 });
  assert.deepEqual(await looksInto(() => model.set(other, remotes(3))), ["endpoints-3", "nodeport-endpoints-3"]);
  assert.deepEqual(await looksInto(() => model.set(other, remotes(7))), ["endpoints-7", "nodeport-endpoints-7"]);
  assert.deepEqual(await looksInto(() => model.set({ ...other, ...sticky(90) })), ["clients-90"]);
  assert.deepEqual(await looksInto(() => model.set({ ...other, ...sticky(91) })), ["clients-91"]);
  assert.deepEqual(await looksInto(() => model.delete(other)), []);
});

test("a size that is refused keeps the last known good rules, and its services are named", async () => {
  const model = await modelWith(2);
  const allow = model.rig.kernel.refuse((operation) =>
    operation.kind === "add-set" && operation.set.name === "endpoints-3" ? { code: "failed" } : undefined,
  );
  model.set(port("b", "10.96.0.3"), remotes(2));
  model.setEndpoints(A, remotes(3));
  const { failures } = await model.rig.sync();
  assert.deepEqual(
    failures.map(({ subject }) => subject),
    ["ns/a:p"],
  );
  assert.equal((await endpointsOf(model.rig, "endpoints-2")).length, 4);
  allow();
  assert.deepEqual((await model.rig.sync()).failures, []);
  assert.equal((await endpointsOf(model.rig, "endpoints-3")).length, 3);
});

test("a refused service keeps its elements through a restart", async () => {
  const model = await modelWith(2);
  const { rig } = model;
  rig.kernel.refuse((operation) =>
    operation.kind === "add-elements" && operation.elements.some(({ target }) => target?.ip === "10.180.0.9")
      ? { code: "failed" }
      : undefined,
  );
  model.setEndpoints(A, [remote("10.180.0.1"), remote("10.180.0.9")]);
  rig.restart();
  const before = await endpointsOf(rig, "endpoints-2");
  assert.deepEqual(
    (await rig.sync()).failures.map(({ subject }) => subject),
    ["ns/a:p"],
  );
  assert.deepEqual(await endpointsOf(rig, "endpoints-2"), before);
});

test("a restart with nothing changed writes nothing, nor does a full sync", async () => {
  const model = await modelWith(70);
  model.set(STICKY, remotes(3));
  model.set(
    port("lb", "10.96.0.4", { loadBalancerVIPs: [ip("203.0.113.4")], loadBalancerSourceRanges: [] }),
    remotes(1),
  );
  await model.rig.sync();
  assert.deepEqual(await texts(model.rig, { full: true }), []);
  model.rig.restart();
  assert.deepEqual(await texts(model.rig), []);
});

test("an element that another program deleted, and a rule, come back alone", async () => {
  const model = await modelWith(2);
  const { rig } = model;
  const another = rig.kernel.connectAnother();
  const set = { name: "endpoints-2", key: [], isMap: false } as const;
  await another.transact([{ kind: "delete-elements", set, keys: [[ip("10.96.0.1"), "tcp", 80, 1]] }]);
  assert.deepEqual(await texts(rig), ["add-elements endpoints-2 10.96.0.1 . tcp . 80 . 1"]);
  await another.transact([{ kind: "flush-chain", chain: "frontend-endpoints" }]);
  assert.deepEqual(await texts(rig), [
    "add-chain frontend-endpoints",
    "flush-chain frontend-endpoints",
    "add-rule frontend-endpoints",
  ]);
});

const client = (address: string, to: readonly [string, "tcp", number], endpoint: string): NftElement => ({
  key: [ip(address), ip(to[0]), to[1], to[2]],
  target: { ip: ip(endpoint), port: 8080 },
});

test("clients of an endpoint that is gone are forgotten, at once and after a restart; others stay", async () => {
  const model = newModel({ layout: "Flat" });
  const { rig } = model;
  model.set(STICKY, remotes(3));
  await rig.sync();
  const CLUSTER_IP = ["10.96.0.2", "tcp", 80] as const;
  const put = (...args: Parameters<typeof client>) => rig.kernel.putClient("clients-600", client(...args));
  put("10.1.0.1", CLUSTER_IP, "10.180.0.1");
  put("10.1.0.2", CLUSTER_IP, "10.180.0.2");
  put("10.1.0.3", ["192.168.0.2", "tcp", 30080], "10.180.0.3");
  put("10.1.0.4", ["192.168.0.2", "tcp", 30080], "10.180.0.1");
  model.setEndpoints(STICKY, remotes(2));
  await rig.sync();
  const left = () => (rig.kernel.packetEntries("clients-600") ?? []).map((key) => key.split(" ")[0]);
  assert.deepEqual(left(), ["10.1.0.1", "10.1.0.2", "10.1.0.4"]);
  model.setEndpoints(STICKY, [remote("10.180.0.2"), remote("10.180.0.5")]);
  rig.restart();
  await rig.sync();
  assert.deepEqual(left(), ["10.1.0.2"]);
  model.delete(STICKY);
  await rig.sync();
  assert.equal(rig.kernel.packetEntries("clients-600"), undefined);
});

test("a client whom a packet on its way writes down again is forgotten, too", async () => {
  const kernel = new MemoryNftKernel("ip");
  const gone = client("10.1.0.1", ["10.96.0.2", "tcp", 80], "10.180.0.3");
  let deletions = 0;
  const connect = () => {
    const nft = kernel.connect();
    const transact: typeof nft.transact = async (operations, options) => {
      const all = [...operations];
      await nft.transact(all, options);
      if (!all.some((one) => one.kind === "delete-elements" && one.set.name === "clients-600")) return;
      deletions += 1;
      if (deletions === 1) kernel.putClient("clients-600", gone);
    };
    return { ...nft, transact };
  };
  const model = newModel({ layout: "Flat", connect });
  model.set(STICKY, remotes(3));
  await model.rig.sync();
  kernel.putClient("clients-600", gone);
  model.setEndpoints(STICKY, remotes(2));
  await model.rig.sync();
  assert.deepEqual([deletions, kernel.packetEntries("clients-600")], [2, []]);
});

test("one layout takes over from the other in one transaction, and leaves nothing of it", async () => {
  const model = newModel({ layout: "Compatible" });
  const { rig } = model;
  model.set(A, [local("10.180.0.1"), remote("10.180.0.2")]);
  model.set(STICKY, remotes(3));
  model.set(port("none", "10.96.0.9"), []);
  await rig.sync();
  for (const layout of ["Flat", "Compatible", "Flat"] as const) {
    rig.layout = layout;
    rig.restart();
    rig.kernel.takeOperations();
    await rig.sync();
    assert.equal(rig.kernel.transactions.length, 1, layout);
    assert.ok(!rig.kernel.takeOperations().some(({ kind }) => kind === "delete-table"), "in place");
    const sorted = (list: readonly unknown[]) => list.map((one) => JSON.stringify(one)).sort();
    assert.deepEqual(sorted(rig.list()), sorted((await rig.fromNothing()).list()), layout);
  }
});

test("counters are where they are asked for, and to switch them makes the table again in one transaction", async () => {
  const model = await modelWith(2);
  const { rig } = model;
  model.set(STICKY, remotes(1));
  await rig.sync();
  const counting = async (counted: typeof rig.counted): Promise<readonly string[]> => {
    rig.counted = counted;
    rig.restart();
    const before = rig.kernel.transactions.length;
    await rig.sync({ full: true });
    assert.equal(rig.kernel.transactions.length - before, 1, counted);
    const sets = (await rig.kernel.connectAnother().read())?.sets ?? new Map();
    assert.equal(sets.get("endpoints-2")?.elements.length, 2);
    return [...sets].flatMap(([name, { hasCounters }]) => (hasCounters === true ? [name] : [])).sort();
  };
  const frontends = [
    ...["dropped-frontends", "dropped-nodeports", "frontends", "nodeports", "rejected-frontends", "rejected-nodeports"],
    "restricted-frontends",
  ];
  assert.deepEqual(await counting("Frontends"), frontends);
  const endpoints = ["endpoints-1", "endpoints-2", "nodeport-endpoints-1"];
  assert.deepEqual(await counting("Endpoints"), [...frontends, ...endpoints].sort());
  assert.deepEqual(await counting("None"), []);
});
