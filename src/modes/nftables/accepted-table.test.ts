/** Service ports that the kernel rejects while something else in the table changes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { local, port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { NftError, type NftOperation } from "../../kernel/nftables/nftables.ts";
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip } from "../../model/testing/records.ts";
import { flatSet } from "./flat/sets.ts";
import { AFFINITY_SET, isAffinitySet } from "./names.ts";
import { clusterChain, newModel } from "./testing/backend-rig.ts";

for (const [from, to] of [
  ["Compatible", "Flat"],
  ["Flat", "Compatible"],
] as const) {
  test(`from ${from} to ${to} with a refused port: it is accepted again by itself`, async () => {
    const model = newModel({ layout: from });
    const [a, b] = [port("a", "10.96.0.1"), port("b", "10.96.0.2")];
    for (const one of [a, b]) model.set(one, [remote("10.180.0.1")]);
    await model.rig.sync();
    const isOfA = (operation: NftOperation): boolean =>
      to === "Compatible"
        ? operation.kind === "add-rule" && operation.chain === clusterChain(a)
        : operation.kind === "add-elements" &&
          operation.set.name === "frontends" &&
          operation.elements.some(({ key }) => key[0] === a.clusterIP);
    const allow = model.rig.kernel.refuse((operation) => (isOfA(operation) ? { code: "failed" } : undefined));
    model.rig.layout = to;
    model.rig.restart();
    assert.deepEqual(
      (await model.rig.sync()).failures.map(({ subject }) => subject),
      ["ns/a:p"],
    );
    allow();
    assert.deepEqual((await model.rig.sync()).failures, []);
    assert.equal(canonicalNftables(model.rig.list()), canonicalNftables((await model.rig.fromNothing()).list()));
  });
}

test("a refused port while endpoints begin to be counted costs the others nothing", async () => {
  const model = newModel({ layout: "Flat" });
  model.rig.counted = "Frontends";
  model.rig.restart();
  const [a, b] = [port("a", "10.96.0.1"), port("b", "10.96.0.2")];
  for (const one of [a, b]) model.set(one, [remote("10.180.0.1")]);
  await model.rig.sync();
  model.rig.kernel.refuse((operation) =>
    operation.kind === "add-elements" &&
    operation.set.name === "endpoints-2" &&
    operation.elements.some(({ key }) => key[0] === a.clusterIP)
      ? { code: "failed" }
      : undefined,
  );
  model.setEndpoints(a, [remote("10.180.0.1"), remote("10.180.0.2")]);
  model.setEndpoints(b, [remote("10.180.0.9")]);
  model.rig.counted = "Endpoints";
  model.rig.restart();
  assert.deepEqual(
    (await model.rig.sync()).failures.map(({ subject }) => subject),
    ["ns/a:p"],
  );
});

test("a refused port with a long name keeps the refusal of its traffic", async () => {
  const model = newModel();
  const name = servicePortName("n".repeat(63), "s".repeat(63), "port-name", "TCP");
  const a = port("a", "10.96.0.1", { name });
  model.set(a);
  await model.rig.sync();
  const before = canonicalNftables(model.rig.list());
  model.rig.kernel.refuse((operation) =>
    operation.kind === "add-rule" && operation.chain === clusterChain(a) ? { code: "unsupported" } : undefined,
  );
  model.setEndpoints(a, [local("10.180.0.1")]);
  assert.equal((await model.rig.sync()).failures.length, 1);
  assert.equal(canonicalNftables(model.rig.list()), before);
});

for (const [from, to] of [
  ["Compatible", "Flat"],
  ["Flat", "Compatible"],
] as const) {
  for (const count of [3, 100]) {
    test(`from ${from} to ${to}, ${count} Services: a refusal that passes costs no Service anything`, async () => {
      const model = newModel({ layout: from });
      const ports = Array.from({ length: count }, (_, index) => port(`s${index}`, `10.96.0.${index + 1}`));
      for (const one of ports) model.set(one, [remote("10.180.0.1")]);
      await model.rig.sync();
      model.rig.kernel.failOnce(new NftError("failed", "nftables: ENOMEM", undefined));
      model.rig.layout = to;
      model.rig.restart();
      const outcome = await model.rig.sync().catch((error: unknown) => ({ failures: String(error) }));
      const content = await model.rig.kernel.connect().read();
      const set = to === "Flat" ? "frontends" : "service-ips";
      assert.deepEqual(outcome.failures, []);
      assert.equal(content?.sets.get(set)?.elements.length, count);
    });
  }
}

for (const layout of ["Compatible", "Flat"] as const) {
  for (const family of ["IPv4", "IPv6"] as const) {
    test(`${layout}, ${family}: the first sync tells which endpoints an earlier process's table had`, async () => {
      const model = newModel({ layout, family });
      const [address, kept, gone] =
        family === "IPv4" ? ["10.96.0.1", "10.180.0.1", "10.180.0.2"] : ["fd00:96::1", "fd00:180::1", "fd00:180::2"];
      const a = port("a", address);
      const udp = { ...port("b", address), name: servicePortName("ns", "b", "p", "UDP"), protocol: "UDP" } as const;
      for (const one of [a, udp]) model.set(one, [remote(kept), remote(gone)]);
      assert.deepEqual([...((await model.rig.sync()).formerEndpoints ?? [])], []);
      for (const one of [a, udp]) model.set(one, [remote(kept)]);
      model.rig.restart();
      const { formerEndpoints = [] } = await model.rig.sync();
      const left = [...formerEndpoints].filter(({ endpoint }) => !endpoint.includes(kept));
      const endpoint = remote(gone).text;
      assert.deepEqual(
        new Set(left.map((one) => JSON.stringify(one))),
        new Set([`{"owner":"ns/a:p/TCP","endpoint":"${endpoint}"}`]),
      );
      assert.deepEqual([...((await model.rig.sync({ full: true })).formerEndpoints ?? [])], []);
    });
  }
}

for (const layout of ["Compatible", "Flat"] as const) {
  for (const when of ["while it runs", "before it starts"] as const) {
    test(`${layout}: an element that catches all clients goes, added ${when}`, async () => {
      const model = newModel({ layout });
      const a = port("a", "10.96.0.1", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 600 });
      model.set(a, [remote("10.180.0.1"), remote("10.180.0.2")]);
      await model.rig.sync();
      const nft = model.rig.kernel.connectAnother();
      const affinity: readonly NftSet[] =
        layout === "Flat"
          ? [flatSet("clients-600") ?? assert.fail()]
          : [...((await nft.read())?.sets.keys() ?? [])]
              .filter(isAffinitySet)
              .map((name) => ({ ...AFFINITY_SET, name }));
      assert.ok(affinity.length > 0);
      const all = { key: [], ...(layout === "Flat" && { target: { ip: ip("10.180.0.9"), port: 8080 } }) };
      if (when === "before it starts") model.rig.restart();
      for (const set of affinity) await nft.transact([{ kind: "add-elements", set, elements: [all] }]);
      assert.equal((await nft.withCatchAll(affinity)).length, affinity.length);
      await model.rig.sync();
      assert.deepEqual(await nft.withCatchAll(affinity), []);
    });
  }
}
