/** The iptables mode monitors its rules: which changes by other programs it notices, and at what cost. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import type { LostRules } from "../../contract/backend.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

test("the rules count as intact until one of the jumps is gone", async () => {
  const bench = new BackendBench();
  await bench.backend.monitor(() => {}, new AbortController().signal);
  assert.equal(await bench.isIntact?.(), "unknown");
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  bench.kernel.flush("filter");
  assert.equal(await bench.isIntact?.(), "absent");
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  bench.kernel.flush("nat", { deleteChains: true });
  assert.equal(await bench.isIntact?.(), "absent");
});

for (const backEnd of ["nft", "legacy"] as const) {
  test(`${backEnd}: a service's chain that others changed is written again, and nothing else`, async () => {
    const bench = new BackendBench({}, new MemoryIptables("IPv4", { backEnd }));
    const lost: (readonly string[] | undefined)[] = [];
    const onLost = (what?: LostRules) => void lost.push(what === undefined ? undefined : [...what.ports]);
    await bench.backend.monitor(onLost, new AbortController().signal);
    bench.set("a", clusterIP(1), 2);
    bench.set("b", clusterIP(2), 2);
    await bench.sync(true);
    const before = bench.kernel.dump("nat");
    const chains = bench.kernel.chains("nat").filter((name) => name.startsWith("KUBE-SVC-"));
    const endpoint = bench.kernel.chains("nat").find((name) => name.startsWith("KUBE-SEP-"));
    assert.equal(await bench.isIntact?.(), "present");
    for (const line of [`-F ${chains[0]}`, `-I ${chains[1]} -j RETURN`, `-A ${endpoint} -j ACCEPT`]) {
      lost.length = 0;
      bench.sent();
      await bench.kernel.restore([`*nat\n${line}\nCOMMIT\n`]);
      assert.equal(await bench.isIntact?.(), "present");
      const [owners = assert.fail("a full sync")] = lost;
      assert.equal(owners.length, 1, line);
      assert.match(bench.warnings.at(-1) ?? "", /changed our iptables rules; repairing them .*"KUBE-S(VC|EP)-/);
      bench.touch(owners);
      bench.sent();
      await bench.sync();
      assert.equal(bench.sent().length, 1);
      assert.equal(bench.kernel.dump("nat").replaceAll(/^#.*/gm, ""), before.replaceAll(/^#.*/gm, ""), line);
      assert.equal(await bench.isIntact?.(), "present");
    }
    assert.equal(bench.warnings.length, 3);
    // Another program's rule that jumps to our chain is no damage.
    lost.length = 0;
    await bench.kernel.restore([`*nat\n:THEIRS - [0:0]\n-A THEIRS -j ${chains[0]}\nCOMMIT\n`]);
    for (let n = 0; n < 3; n += 1) assert.equal(await bench.isIntact?.(), "present");
    assert.deepEqual([lost, bench.warnings.length], [[], 3]);
    // Damage in a shared chain rewrites everything.
    await bench.kernel.restore(["*filter\n-I KUBE-FORWARD -j ACCEPT\nCOMMIT\n"]);
    assert.equal(await bench.isIntact?.(), "absent");
    assert.equal(await bench.isIntact?.(), "absent");
    assert.equal(bench.warnings.length, 4);
    await bench.sync(true);
    assert.equal(await bench.isIntact?.(), "present");
  });
}

test("a look that takes long is followed by a rest, and by another look within the period", async () => {
  const kernel = new MemoryIptables("IPv4", { backEnd: "legacy" });
  let nowMs = 0;
  let looks = 0;
  const chainUses = kernel.chainUses.bind(kernel);
  kernel.chainUses = async (table) => {
    if (table === "nat") looks += 1;
    nowMs += 1_000; // one request per table
    return await chainUses(table);
  };
  const bench = new BackendBench({ nowMs: () => nowMs, checkPeriodMs: 30_000 }, kernel);
  await bench.backend.monitor(() => {}, new AbortController().signal);
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  nowMs += 29_999;
  await bench.isIntact?.();
  assert.equal(looks, 1);
  nowMs += 1;
  await bench.isIntact?.();
  assert.equal(looks, 2);
});

test("while the kernel counts no change, no chain is looked at", async () => {
  const bench = new BackendBench();
  await bench.backend.monitor(() => assert.fail("lost"), new AbortController().signal);
  bench.set("a", clusterIP(1), 2);
  await bench.sync(true);
  assert.equal(await bench.isIntact?.(), "present");
  bench.kernel.chainUses = () => assert.fail("looked");
  for (let n = 0; n < 3; n += 1) assert.equal(await bench.isIntact?.(), "present");
});
