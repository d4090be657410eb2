import assert from "node:assert/strict";
import { it } from "node:test";
import type { Flow } from "../../net/flow.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService, UDP } from "./testing/proxier-events.ts";
import { serviceRecord } from "./testing/records.ts";

const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);

/** A pod's query to a real host at that address, which no rule translates (it is only masqueraded on its way out). */
function toRealHost(sourcePort: number): Flow {
  return {
    protocol: "UDP",
    sourceIP: ip("10.9.9.9"),
    sourcePort,
    destinationIP: ip("203.0.113.7"),
    destinationPort: 80,
    replySourceIP: ip("203.0.113.7"),
    replySourcePort: 80,
    replyDestinationIP: ip("192.0.2.1"),
    replyDestinationPort: 40_000 + sourcePort,
  };
}

it("while one Service is refused, flows to an address that another one has given up long ago are left alone", async () => {
  const bench = new ProxierBench();
  // One Service that the kernel always rejects.
  bench.backend.script = () => ({ refused: ["ns/bad:p/TCP"] });
  await bench.start();
  addService(bench, "bad", { clusterIP: "10.0.0.9", clusterIPs: ["10.0.0.9"] });
  const dns = serviceRecord("dns", { ...UDP, externalIPs: ["203.0.113.7"] });
  bench.proxier.onService({ kind: "add", object: dns });
  await bench.clock.advance(60_000);
  // Its deletion reaches the kernel at once: it is not the rejected part.
  bench.proxier.onService({ kind: "delete", object: dns });
  await bench.clock.advance(5_000);
  assert.deepEqual([...bench.backend.programmed.keys()], []);

  // An hour later the address belongs to an ordinary host, and pods talk to it.
  await bench.clock.advance(3_600_000);
  bench.conntrack.flows = [toRealHost(1)];
  await bench.clock.advance(120_000);
  assert.equal(bench.conntrack.flows.length, 1, "the flow was deleted by a retry of the other Service");
});

it("what a refused Service leaves behind does not grow with every UDP Service that goes", async () => {
  const bench = new ProxierBench();
  bench.backend.script = () => ({ refused: ["ns/bad:p/TCP"] });
  await bench.start();
  addService(bench, "bad", { clusterIP: "10.0.0.9", clusterIPs: ["10.0.0.9"] });
  await bench.clock.advance(5_000);
  const dumps: number[] = [];
  for (let n = 1; n <= 3; n++) {
    const gone = serviceRecord(`u${n}`, { ...UDP, clusterIP: `10.0.1.${n}`, clusterIPs: [`10.0.1.${n}`] });
    bench.proxier.onService({ kind: "add", object: gone });
    await bench.clock.advance(5_000);
    bench.proxier.onService({ kind: "delete", object: gone });
    await bench.clock.advance(5_000);
    dumps.push(bench.conntrack.dumps);
  }
  const before = bench.conntrack.dumps;
  // No UDP Service is left: a change to a TCP Service is no reason to read the whole table.
  for (let n = 0; n < 10; n++) {
    addService(bench, `t${n}`, { clusterIP: `10.0.2.${n + 1}`, clusterIPs: [`10.0.2.${n + 1}`] });
    await bench.clock.advance(2_000);
  }
  assert.equal(bench.conntrack.dumps - before, 0, `dumps of conntrack for changes of TCP Services (earlier: ${dumps})`);
});
