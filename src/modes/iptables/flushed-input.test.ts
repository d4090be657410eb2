/** Another program flushes one built-in chain. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

for (const chain of ["INPUT", "FORWARD", "OUTPUT"] as const) {
  test(`iptables -F ${chain}: the jumps that are gone are noticed`, async () => {
    const bench = new BackendBench({}, new MemoryIptables("IPv4"));
    await bench.backend.monitor(() => {}, new AbortController().signal);
    bench.set("a", clusterIP(1), 2);
    await bench.sync(true);
    assert.equal(await bench.isIntact?.(), "present");
    await bench.kernel.restore([`*filter\n-F ${chain}\nCOMMIT\n`]);
    assert.equal(await bench.isIntact?.(), "absent");
  });
}
