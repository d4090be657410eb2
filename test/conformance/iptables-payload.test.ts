import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { planServicePort } from "../../src/modes/iptables/plan-service-port.ts";
import { planStatic } from "../../src/modes/iptables/plan-static.ts";
import { fullPayload } from "../../src/modes/shared/iptables-rules/full-payload.ts";
import { spell } from "../../src/modes/shared/iptables-rules/owner-rules.ts";
import { textsOf } from "../../src/modes/shared/iptables-rules/payload.ts";
import { type ExampleCluster, ipv4Example, ipv6Example } from "./example-clusters.ts";

function payloadText({ config, facts, ports }: ExampleCluster): string {
  const spelled = ports.map(
    ([port, endpoints]) => [port.name.key, spell(planServicePort(port, endpoints, config, facts))] as const,
  );
  const payload = fullPayload({ plan: planStatic(config, facts), ports: spelled });
  return [...textsOf(payload.transactions)].join("");
}

function expected(name: string): string {
  return readFileSync(new URL(`examples/${name}`, import.meta.url), "utf8");
}

test("the full IPv4 payload is the reference's, line by line (iptables-examples.md §16.1)", () => {
  assert.equal(payloadText(ipv4Example), expected("ipv4-payload.txt"));
});

test("the full IPv6 payload is the reference's, line by line (iptables-examples.md §17.1)", () => {
  assert.equal(payloadText(ipv6Example), expected("ipv6-payload.txt"));
});
