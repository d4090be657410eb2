/** The iptables mode with a kernel that rejects rules, or with an xtables lock that another program holds. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { IptablesError, IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

test("while the lock is held a sync fails as a whole, is counted, and the next one writes everything", async () => {
  const bench = new BackendBench();
  bench.set("a", clusterIP(1));
  await bench.sync(true);
  bench.set("a", clusterIP(1), 2);
  bench.kernel.isLocked = true;
  await assert.rejects(bench.sync(), { code: "lock_held" });
  assert.deepEqual(bench.counts, { restoreFailures: 1, partialRestoreFailures: 1 });
  assert.equal(await bench.backend.monitor(() => {}, new AbortController().signal), undefined);
  assert.equal(await bench.isIntact?.(), "unknown");
  bench.kernel.isLocked = false;
  bench.sent();
  await bench.sync();
  assert.match(bench.sent()[0] ?? "", /^\*filter\n[^*]*\*nat\n/);
  assert.match(bench.kernel.dump("nat"), /ns\/a -> 10\.0\.1\.2:80/);
});

test("a partial sync that is refused becomes a full one at once", async () => {
  const bench = new BackendBench();
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  // Another program deletes a rule that the next change would delete.
  bench.kernel.flush("nat");
  bench.set("a", undefined);
  assert.deepEqual((await bench.sync()).failures, []);
  assert.deepEqual(bench.counts, { restoreFailures: 1, partialRestoreFailures: 1 });
  assert.match(bench.errors[0] ?? "", /^Partial sync was refused, rewriting all rules: /);
  assert.match(bench.kernel.dump("nat"), /-A KUBE-SERVICES .* -j KUBE-NODEPORTS/);
  assert.doesNotMatch(bench.kernel.dump("nat"), /KUBE-SVC-/);
});

/** A kernel that rejects new nat rules containing this text, and optionally names their lines. */
function kernelRefusing(text: string, namesLine: boolean): MemoryIptables & { isHealed: boolean } {
  const kernel = Object.assign(new MemoryIptables("IPv4"), { isHealed: false });
  const restore = kernel.restore.bind(kernel);
  kernel.restore = async (payload, options) => {
    const tables = [...payload].join("").split(/(?<=^COMMIT\n)/m);
    for (const [index, table] of tables.entries()) {
      const at = table.split("\n").findIndex((line) => /^-[AI] /.test(line) && line.includes(text));
      if (table.startsWith("*nat") && at >= 0 && !kernel.isHealed) {
        const line = namesLine ? tables.slice(0, index).join("").split("\n").length + at : undefined;
        throw new IptablesRestoreError("failed", "iptables-restore", 1, "refused", line);
      }
      await restore([table], options);
    }
  };
  return kernel;
}

for (const namesLine of [true, false]) {
  test(`a refused port keeps its last known good rules in both tables (line ${namesLine ? "named" : "not named"})`, async () => {
    const kernel = kernelRefusing("10.0.3.1", namesLine);
    const bench = new BackendBench({}, kernel);
    bench.set("bad", clusterIP(1), 0);
    bench.set("good", clusterIP(2));
    await bench.sync(true);
    const before = kernel.dump("filter") + kernel.dump("nat");
    assert.match(before, /"ns\/bad has no endpoints"/);
    bench.set("bad", clusterIP(1), 1);
    for (const isFullSync of [false, false, true]) {
      const { failures } = await bench.sync(isFullSync);
      assert.deepEqual(failures, [{ subject: "ns/bad", reason: "refused" }]);
      assert.equal(kernel.dump("filter") + kernel.dump("nat"), before);
    }
    kernel.isHealed = true;
    assert.deepEqual((await bench.sync()).failures, []);
    assert.doesNotMatch(kernel.dump("filter"), /ns\/bad/);
    assert.match(kernel.dump("nat"), /10\.0\.3\.1/);
  });
}

test("a port that was refused gets the address that it owns once it is accepted", async () => {
  const kernel = kernelRefusing("10.0.1.1", true);
  const bench = new BackendBench({}, kernel);
  bench.set("a", clusterIP(1));
  bench.set("bb", clusterIP(1));
  await bench.sync(true);
  const entries = () =>
    [...kernel.dump("nat").matchAll(/-A KUBE-SERVICES .*"ns\/(\S+) cluster IP"/g)].map(([, name]) => name);
  assert.deepEqual(entries(), []);
  kernel.isHealed = true;
  await bench.sync();
  assert.deepEqual(entries(), ["a"]);
});

test("more offenders than are worth naming one by one: the others are programmed all the same", async () => {
  const kernel = new MemoryIptables("IPv4");
  const restore = kernel.restore.bind(kernel);
  kernel.restore = async (payload, options) => {
    const text = [...payload].join("");
    const line = text.split("\n").findIndex((one) => /^-[AI] .*ns\/bad/.test(one)) + 1;
    if (line > 0) throw new IptablesRestoreError("failed", "iptables-restore", 1, `line ${line} failed`, line);
    await restore([text], options);
  };
  const bench = new BackendBench({}, kernel);
  const names = Array.from({ length: 40 }, (_, index) => (index % 3 === 0 ? `bad${index}` : `good${index}`));
  for (const [index, name] of names.entries()) bench.set(name, clusterIP(index + 1));
  const { failures } = await bench.sync(true);
  const offenders = names.filter((name) => name.startsWith("bad"));
  assert.deepEqual(failures.map(({ subject }) => subject).sort(), offenders.map((name) => `ns/${name}`).sort());
  const fresh = new BackendBench();
  for (const [index, name] of names.entries()) if (!offenders.includes(name)) fresh.set(name, clusterIP(index + 1));
  await fresh.sync(true);
  assert.equal(kernel.dump("nat"), fresh.kernel.dump("nat"));
  assert.deepEqual(bench.totals, fresh.totals);
});

test("a service whose name no rule can carry is named, and later changes are sent by themselves all the same", async () => {
  const bench = new BackendBench();
  bench.set("a", clusterIP(1));
  await bench.sync(true);
  bench.set("l".repeat(260), clusterIP(2), 0);
  const { failures } = await bench.sync();
  assert.match(failures[0]?.reason ?? "", /at most 255 characters/);
  bench.sent();
  bench.set("b", clusterIP(3));
  const next = await bench.sync();
  assert.deepEqual(next.failures, failures);
  const [payload = "", ...more] = bench.sent();
  assert.match(payload, /-I KUBE-SERVICES .*ns\/b cluster IP/);
  assert.doesNotMatch(payload, /ns\/a/);
  assert.deepEqual(more, []);
  bench.set("l".repeat(260), undefined);
  assert.deepEqual((await bench.sync()).failures, []);
});

test("a service whose comments grow too long keeps its last known good rules, and nothing else is rewritten", async () => {
  const bench = new BackendBench({ largeClusterEndpoints: -1 });
  const name = "l".repeat(240); // fits with "cluster IP" behind it, but not with "has no endpoints"
  bench.set(name, clusterIP(1));
  await bench.sync(true);
  const before = bench.kernel.dump("nat");
  bench.sent();
  bench.set(name, clusterIP(1), 0);
  const { failures } = await bench.sync();
  assert.equal(failures.length, 1);
  assert.equal(bench.kernel.dump("nat"), before);
  assert.deepEqual(bench.sent(), []);
  await bench.sync(true);
  assert.equal(bench.kernel.dump("nat"), before);
});

test("tables that the tool cannot print get each jump once, and a refused service keeps no other out", async (t) => {
  const kernel = kernelRefusing("ns/bad", true);
  const unreadable = () =>
    Promise.reject(new IptablesError("unreadable", "iptables-save", 0, "Table `filter' is incompatible"));
  t.mock.method(kernel, "save", unreadable);
  const bench = new BackendBench({}, kernel);
  bench.set("a", clusterIP(1));
  bench.set("bad", clusterIP(2));
  for (let n = 0; n < 3; n += 1) {
    const { failures } = await bench.sync(true);
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      ["ns/bad"],
    );
  }
  assert.match(kernel.dump("nat"), /-A KUBE-SERVICES -d 172\.16\.0\.1\/32 /);
  assert.equal(kernel.rules("filter", "FORWARD").length, 4);
});

test("the first sync tells which endpoints the rules of an earlier process had", async () => {
  const before = new BackendBench();
  before.set("a", clusterIP(1), 2);
  before.set("bb", clusterIP(2), 2);
  assert.deepEqual((await before.sync(true)).formerEndpoints, []);
  const bench = new BackendBench({}, before.kernel);
  bench.set("a", clusterIP(1), 1);
  const { formerEndpoints = [] } = await bench.sync(true);
  const left = [...formerEndpoints].map(({ owner, endpoint }) => `${JSON.stringify(owner)} ${endpoint}`).sort();
  assert.deepEqual(left, ['"ns/a/TCP" 10.0.1.2:80', '"ns/bb/TCP" 10.0.2.1:80', '"ns/bb/TCP" 10.0.2.2:80']);
  assert.deepEqual((await bench.sync(true)).formerEndpoints, []);
});
