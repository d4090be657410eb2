/** Another program's rule jumps to one of our chains when its owner goes; later the owner comes back. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

for (const backEnd of ["nft", "legacy"] as const) {
  test(`${backEnd}: a held chain that a service owns again is not emptied any more`, async () => {
    const bench = new BackendBench({}, new MemoryIptables("IPv4", { backEnd }));
    bench.set("a", clusterIP(1));
    await bench.sync(true);
    const [chain] = bench.kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-"));
    await bench.kernel.restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${chain}\nCOMMIT\n`]);
    bench.set("a", undefined);
    const { failures } = await bench.sync();
    assert.deepEqual(
      failures.map(({ subject }) => subject),
      [`chain ${chain}`],
    );
    bench.set("a", clusterIP(1));
    for (let n = 0; n < 3; n += 1) {
      const outcome = await bench.sync();
      assert.equal(bench.kernel.rules("nat", `${chain}`).length, 1, `sync ${n}: ${JSON.stringify(outcome.failures)}`);
      assert.deepEqual(outcome.failures, []);
    }
  });
}

for (const fault of ["held", "killed"] as const) {
  test(`chains of an earlier run, deleted in portions, one of them ${fault}: all others go, and that one later`, async () => {
    const kernel = new MemoryIptables("IPv4", { backEnd: "nft" });
    const earlier = new BackendBench({}, kernel);
    for (let n = 1; n <= 5; n += 1) earlier.set(`s${n}`, clusterIP(n));
    await earlier.sync(true);
    const ownChains = () => kernel.chains("nat").filter((name) => /^KUBE-S(?:VC|EP)-/.test(name));
    const bench = new BackendBench({ portsPerTransaction: 3 }, kernel);
    bench.set("s1", clusterIP(1));
    const stale = ownChains().at(-1) ?? "";
    const { restore } = kernel;
    if (fault === "held") await restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${stale}\nCOMMIT\n`]);
    else {
      kernel.restore = async (payload) => {
        for (const transaction of [...payload].join("").split(/(?<=^COMMIT\n)/m)) {
          if (transaction.includes(`-X ${stale}\n`)) throw new IptablesRestoreError("killed", "", -1, "", undefined);
          await restore.call(kernel, [transaction]);
        }
      };
    }
    if (fault === "held") assert.equal((await bench.sync(true)).failures.length, 1);
    else await assert.rejects(bench.sync(true), { code: "killed" });
    kernel.restore = restore;
    assert.ok(ownChains().includes(stale) && ownChains().length <= 5, `${ownChains()}`);
    if (fault === "held") await restore(["*nat\n-F THEIRS\nCOMMIT\n"]);
    assert.deepEqual((await bench.sync()).failures, []);
    assert.equal(ownChains().length, 2);
  });
}

test("a held chain that a service had again for a while is not missed when it is gone", async () => {
  const bench = new BackendBench();
  const lost: unknown[] = [];
  await bench.backend.monitor((what) => void lost.push(what), new AbortController().signal);
  bench.set("a", clusterIP(1));
  await bench.sync(true);
  const [chain] = bench.kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-"));
  await bench.kernel.restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${chain}\nCOMMIT\n`]);
  bench.set("a", undefined);
  bench.set("b", clusterIP(2));
  for (let n = 0; n < 2; n += 1) assert.equal((await bench.sync()).failures.length, 1);
  bench.set("a", clusterIP(1));
  assert.deepEqual((await bench.sync()).failures, []);
  await bench.kernel.restore([`*nat\n-D THEIRS -j ${chain}\nCOMMIT\n`]);
  bench.set("a", undefined);
  assert.deepEqual((await bench.sync()).failures, []);
  assert.equal(await bench.isIntact?.(), "present");
  assert.deepEqual([lost, bench.warnings], [[], []]);
});

test("while a chain is held, it is noticed all the same that another program empties what services share", async () => {
  const bench = new BackendBench();
  await bench.backend.monitor(() => {}, new AbortController().signal);
  bench.set("a", clusterIP(1));
  await bench.sync(true);
  const [chain] = bench.kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-"));
  await bench.kernel.restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${chain}\nCOMMIT\n`]);
  bench.set("a", undefined);
  bench.set("b", clusterIP(2), 0);
  assert.equal((await bench.sync()).failures.length, 1);
  assert.equal(await bench.isIntact?.(), "present");
  await bench.kernel.restore(["*filter\n-F KUBE-SERVICES\nCOMMIT\n"]);
  assert.equal(await bench.isIntact?.(), "absent");
});
