import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryConntrack } from "../../../testkit/fakes/conntrack/memory-conntrack.ts";
import type { TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { forgetUnanswered } from "./waiting-connections.ts";

/** From a client through a Service to an endpoint. */
function flow(sourcePort: number, endpoint: string, port: number, others: Partial<TrackedFlow> = {}): TrackedFlow {
  const isIPv6 = endpoint.includes(":");
  const [client, service, pod] = [isIPv6 ? "fd00::9" : "10.0.0.9", isIPv6 ? "fd96::1" : "10.96.0.1", endpoint].map(
    (text) => {
      const address = parseIpAddress(text);
      assert.ok(address !== undefined, text);
      return address;
    },
  );
  assert.ok(client !== undefined && service !== undefined && pod !== undefined);
  const to = { sourceIP: client, sourcePort, destinationIP: service, destinationPort: 80 };
  const from = {
    replySourceIP: pod,
    replySourcePort: port,
    replyDestinationIP: client,
    replyDestinationPort: sourcePort,
  };
  return { protocol: "TCP", ...to, ...from, isAnswered: false, ...others };
}

test("only what waits for the first answer of this endpoint is forgotten", async () => {
  for (const [pod, other, text] of [
    ["10.1.0.1", "10.1.0.2", "10.1.0.1:8080"],
    ["fd01::1", "fd01::2", "[fd01::1]:8080"],
  ] as const) {
    const kept = [
      flow(4003, pod, 8080, { isAnswered: true }),
      // An old kernel does not say.
      flow(4004, pod, 8080, { isAnswered: undefined }),
      flow(4005, pod, 8081),
      flow(4006, other, 8080),
      flow(4007, pod, 8080, { protocol: "UDP" }),
    ];
    const table = memoryConntrack([flow(4001, pod, 8080), flow(4002, pod, 8080), ...kept]);
    assert.equal(await forgetUnanswered(table, text), 2);
    assert.deepEqual(table.flows, kept);
    assert.equal(await forgetUnanswered(table, text), 0);
  }
  assert.equal(await forgetUnanswered(memoryConntrack([flow(4001, "10.1.0.1", 8080)]), "no address"), 0);
});
