import assert from "node:assert/strict";
import { test } from "node:test";
import { type ExampleCluster, ipv4Example, ipv6Example } from "../../../../test/conformance/example-clusters.ts";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import type { Iptables } from "../../../kernel/iptables/iptables.ts";
import { planServicePort } from "../../iptables/plan-service-port.ts";
import { planStatic } from "../../iptables/plan-static.ts";
import { fullPayload } from "./full-payload.ts";
import { spell } from "./owner-rules.ts";
import { ownerOfLine, type Payload, textsOf } from "./payload.ts";
import type { ServicePortPlan } from "./rules-plan.ts";

function portsOf({ config, facts, ports }: ExampleCluster): (readonly [string, ServicePortPlan])[] {
  return ports.map(([port, endpoints]) => [port.name.key, planServicePort(port, endpoints, config, facts)]);
}

function payloadOf(example: ExampleCluster, portsPerTransaction: number | undefined): Payload {
  const plan = planStatic(example.config, example.facts);
  return fullPayload({
    plan,
    ports: portsOf(example).map(([owner, port]) => [owner, spell(port)]),
    ...(portsPerTransaction !== undefined && { portsPerTransaction }),
  });
}

const textOf = ({ transactions }: Payload) => [...textsOf(transactions)].join("");

async function rulesAfter(iptables: Iptables, payload: Payload): Promise<readonly string[]> {
  await iptables.restore([textOf(payload)]);
  const saved = (await iptables.save("filter")) + (await iptables.save("nat"));
  return saved
    .split("\n")
    .filter((line) => line.startsWith(":KUBE") || line.startsWith("-A"))
    .sort();
}

for (const example of [ipv4Example, ipv6Example]) {
  const { family } = example.config;

  test(`${family}: a full payload in several transactions leaves what one in a single transaction leaves`, async () => {
    const wanted = await rulesAfter(new MemoryIptables(family), payloadOf(example, undefined));
    for (const size of [1, 2, 100]) {
      const iptables = new MemoryIptables(family);
      assert.deepEqual(
        await rulesAfter(iptables, payloadOf(example, size)),
        wanted,
        `${size} ports each, from nothing`,
      );
      assert.deepEqual(await rulesAfter(iptables, payloadOf(example, size)), wanted, `${size} ports each, once more`);
    }
  });

  test(`${family}: no transaction but the last has own chains of more ports than it may`, () => {
    const ports = portsOf(example);
    const transactions = textOf(payloadOf(example, 2)).split("COMMIT\n").slice(0, -1);
    const owners = transactions.map(
      (text) => ports.filter(([, { ownChains }]) => ownChains.some((chain) => text.includes(`:${chain} `))).length,
    );
    assert.ok(Math.max(...owners) <= 2, owners.join(" "));
    assert.equal(owners.at(-1), 0);
    assert.equal(
      owners.reduce((sum, count) => sum + count),
      ports.filter(([, { ownChains }]) => ownChains.length > 0).length,
    );
  });
}

test("shared chains are rewritten once, in the last transaction", () => {
  const transactions = textOf(payloadOf(ipv4Example, 1)).split("COMMIT\n").slice(0, -1);
  const withServices = transactions.flatMap((text, index) =>
    text.startsWith("*nat\n") && text.includes(":KUBE-SERVICES ") ? [index] : [],
  );
  assert.deepEqual(withServices, [transactions.length - 1]);
});

test("a line of a part still leads to its port", () => {
  const payload = payloadOf(ipv4Example, 1);
  const lines = textOf(payload).split("\n");
  for (const [owner, port] of portsOf(ipv4Example)) {
    const rule = spell(port).ownRules.split("\n", 1)[0] ?? "";
    if (rule !== "") assert.equal(ownerOfLine(payload, lines.indexOf(rule) + 1), owner);
  }
});
