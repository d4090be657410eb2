/** The self-test on an in-memory HNS: its report on a good one and on bad ones, and that it leaves nothing behind. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HR, MemoryHcn, type MemoryHcnOptions } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { testHost } from "./self-test.ts";
import { NETWORK, newHost } from "./testing/kernelspace-rig.ts";

async function run(host: MemoryHcn, writes = true) {
  const lines: string[] = [];
  let ms = 0;
  const nowMs = () => ms++;
  const isGood = await testHost({
    calls: host,
    networkName: NETWORK,
    writes,
    nowMs,
    print: (line) => lines.push(line),
  });
  return { isGood, lines, faults: lines.filter((line) => line.startsWith("FAULT")) };
}

for (const type of ["L2Bridge", "Overlay"] as const) {
  test(`a good HNS on an ${type}: facts, raw documents, times, and nothing left`, async () => {
    const host = newHost(type);
    host.addEndpoint({ addresses: ["10.180.0.10"] });
    const before = [...host.documents("Endpoint").keys()];
    const { isGood, lines } = await run(host);
    assert.ok(isGood, lines.join("\n"));
    for (const expected of [
      /^HNS 15\.5: .*dsr/,
      new RegExp(`^network cbr0: ${type}, `),
      /^endpoints: 1, of these remote: 0; load balancers of the host: 0$/,
      /^endpoint 192\.0\.2\.1: as it was sent$/,
      /^load balancer made: as it was sent$/,
      /^load balancer changed: as it was sent$/,
      /^cleaned up: nothing is left$/,
      /^raw Endpoint: \{"ID"/,
      /^createLoadBalancer: 1 calls, median 1\.0 ms, longest 1\.0 ms$/,
    ]) {
      assert.ok(
        lines.some((line) => expected.test(line)),
        `${expected} in\n${lines.join("\n")}`,
      );
    }
    assert.deepEqual([...host.documents("Endpoint").keys()], before);
    assert.equal(host.documents("LoadBalancer").size + host.openHandles, 0);
  });
}

test("without writes nothing is written", async () => {
  const host = newHost();
  assert.ok((await run(host, false)).isGood);
  assert.deepEqual(host.takeWrites(), []);
});

for (const [what, options, fault] of [
  ["changes nothing that it confirms", { modifiesSilently: true }, /load balancer changed: sent .* read back/],
  ["is too old", { version: { major: 9, minor: 1 } }, /HNS 9\.2 is needed/],
] as const satisfies (readonly [string, MemoryHcnOptions, RegExp])[]) {
  test(`an HNS that ${what} is named, and nothing stays`, async () => {
    const host = newHost("L2Bridge", options);
    const { isGood, faults } = await run(host);
    assert.equal(isGood, false);
    assert.match(faults.join("\n"), fault);
    assert.equal(host.documents("Endpoint").size + host.documents("LoadBalancer").size, 0);
  });
}

test("refusals at each step are named, and what was made before goes", async () => {
  for (const kind of ["Endpoint", "LoadBalancer"] as const) {
    const host = newHost();
    host.refuse((call) => (call.verb === "Create" && call.kind === kind ? HR.reservedAddress : undefined));
    const { isGood, faults } = await run(host);
    assert.equal(isGood, false);
    assert.match(faults.join("\n"), new RegExp(`HcnCreate${kind} failed`));
    assert.equal(host.documents("Endpoint").size, 0);
  }
  const none = await run(new MemoryHcn());
  assert.match(none.faults.join("\n"), /HNS has no network "cbr0"/);
});
