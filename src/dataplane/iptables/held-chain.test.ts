/** Another program's rule jumps to one of our chains when its owner goes; later the owner comes back. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
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
