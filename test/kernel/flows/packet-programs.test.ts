/**
 * Packets of another machine where programs at the node's interfaces lead them: the cells of the packet table, of which no rule sees
 * those that are served; what is left to the rules; interfaces that come and go. One network and one daemon for all.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { missingForPackets } from "../../../src/dataplane/ebpf/packet-runtime.ts";
import { nodeA } from "../../../testkit/net/topology-spec.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, differenceFrom, outcomes } from "./asking.ts";
import { FAMILIES, type ServiceSpec } from "./cluster-objects.ts";
import { DESTINATIONS, expected } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { rows } from "./matrix-rows.ts";
import { protocolsOf } from "./modes.ts";

const MODE = "ebpf-tcx";
const CLIENT = "off-node client";
const PODS = ["local-1", "local-2", "remote-1"] as const;
const sticky: ServiceSpec = { name: "sticky", number: 51, endpoints: PODS, spec: { sessionAffinity: "ClientIP" } };
const restricted: ServiceSpec = {
  name: "restricted",
  number: 52,
  endpoints: PODS,
  spec: { loadBalancerSourceRanges: ["10.200.0.0/24", "fd00:200::/64"] },
};

/** A table of another program's, whose chains see a packet only where nothing has decided yet how it is translated. */
const WITNESS = `table inet witness {
  chain in { type nat hook prerouting priority -150; meta l4proto { tcp, udp } counter; }
  chain out { type nat hook postrouting priority 50; meta l4proto { tcp, udp } counter; }
}
`;

async function seenByRules({ topology }: FlowNetwork): Promise<number> {
  const { stdout } = await topology.namespace(nodeA.name).exec(["nft", "list", "table", "inet", "witness"]);
  return [...stdout.matchAll(/packets (\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0);
}

test("programs at interfaces", { skip: kernelSkip }, async (t) => {
  const network = await flowNetwork(t, MODE, [...rows, sticky, restricted], {
    ebpf: { packetInterfaces: ["eth*"] },
    prepare: async (topology) => {
      await topology.namespace(nodeA.name).exec(["nft", "-f", "-"], { input: WITNESS });
    },
  });
  // The rules there have loaded the modules that programs call.
  const missing = missingForPackets();
  if (missing !== undefined) return t.skip(missing);
  const { probers, daemon, topology } = network;
  const client = probers[CLIENT];
  const interfaces = async () => [
    await daemon.metric('kubeproxy_ebpf_packet_interfaces{ip_family="IPv4"}'),
    await daemon.metric('kubeproxy_ebpf_packet_interfaces{ip_family="IPv6"}'),
  ];
  assert.deepEqual(await interfaces(), [1, 1]);

  const cells = rows.flatMap((row) =>
    FAMILIES.flatMap((family) =>
      protocolsOf(MODE).flatMap((protocol) =>
        DESTINATIONS.map((to) => {
          const cell = expected(MODE, row, { to, from: CLIENT, family, protocol, number: row.number });
          const difference = () => differenceFrom(cell, client, addressOf(row.number, to, protocol, family));
          return {
            what: `${row.title}: ${to}, ${protocol} over ${family}`,
            isServed: cell.kind === "answers",
            difference,
          };
        }),
      ),
    ),
  );
  const wrong = async (served: boolean) => {
    const found = cells.filter(({ isServed }) => isServed === served);
    assert.ok(found.length > 0);
    const differences = await Promise.all(
      found.map(async ({ what, difference }) => ({ what, is: await difference() })),
    );
    return differences.filter(({ is }) => is !== undefined);
  };

  await t.test("what is served is served as the table says, and no rule translates it", async () => {
    const before = await seenByRules(network);
    assert.deepEqual(await wrong(true), []);
    assert.equal(await seenByRules(network), before);
  });

  for (const family of FAMILIES) {
    await t.test(`a client over ${family} keeps its endpoint, where the service wants it`, async () => {
      const to = addressOf(sticky.number, "cluster IP", "TCP", family);
      assert.equal(outcomes(await ask(client, to, 12)).length, 1);
    });

    await t.test(`source ranges over ${family} are for the rules`, async () => {
      const before = await seenByRules(network);
      const answers = await ask(client, addressOf(restricted.number, "load balancer", "TCP", family), 4);
      assert.ok(answers.every(({ ok }) => ok));
      assert.equal(await seenByRules(network), before + 8, "each connection meets both chains");
    });
  }

  await t.test("what is refused or dropped is left to the rules", async () => {
    const before = await seenByRules(network);
    assert.deepEqual(await wrong(false), []);
    assert.ok((await seenByRules(network)) > before);
  });

  await t.test("interfaces that come and go are followed", async () => {
    const node = topology.namespace(nodeA.name);
    await node.exec(["ip", "link", "add", "eth7", "type", "veth", "peer", "name", "peer7"]);
    await node.exec(["ip", "address", "add", "10.77.0.1/24", "dev", "eth7"]);
    await daemon.until("a program at the new interface", async () => `${await interfaces()}` === "2,2");
    await node.exec(["ip", "link", "delete", "eth7"]);
    await daemon.until("no program at it", async () => `${await interfaces()}` === "1,1");
  });
});
