/** Servers of the node and its pods beside node ports with the same number: they keep their own traffic. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeA } from "../../../testkit/net/topology-spec.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, outcomes } from "./asking.ts";
import { addressesOf, FAMILIES, type ServiceSpec, servingPods } from "./cluster-objects.ts";
import { namespaceAt } from "./expected.ts";
import { flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";
import { SocketKeeper } from "./socket-keeper.ts";

const service: ServiceSpec = { name: "web", number: 1, endpoints: ["local-2"] };
const { nodePort } = addressesOf(service.number);
const OWN_PORT = 7777;
const UNSPECIFIED = { IPv4: ["0.0.0.0", "::ffff:0.0.0.0"], IPv6: ["::"] } as const;

for (const mode of ALL_MODES) {
  const [tcp] = protocolsOf(mode);
  if (tcp === "SCTP") continue;
  test(`${mode}: servers beside node ports`, { skip: kernelSkip }, async (t) => {
    const network = await flowNetwork(t, mode, [service]);
    const server = new SocketKeeper(network, servingPods["local-1"].name);

    // If the proxy itself has the node port, no client on the node can have it; virtual servers take what arrives at their ports.
    const { carriesTraffic, hasVirtualServers } = traitsOf[mode];
    if (!carriesTraffic && hasVirtualServers !== true) {
      await t.test("a client whose source port is the number of a UDP node port gets its answer", async () => {
        const client = new SocketKeeper(network, nodeA.name);
        for (const [at, family] of FAMILIES.entries()) {
          for (const connects of [false, true]) {
            const port = OWN_PORT + 2 * at + Number(connects);
            await server.serve("UDP", port, "own server", connects);
            const address = servingPods["local-1"][family === "IPv4" ? "ipv4" : "ipv6"];
            const socket = await client.open(family, { address, port, isConnected: false, sourcePort: nodePort });
            const answers = [await socket.ask(), await socket.ask()];
            assert.deepEqual(answers, ["own server", "own server"], `${family}, connected: ${connects}`);
            await socket.close();
          }
        }
      });
    }

    await t.test("a pod that asks the unspecified address at a node port's number reaches its own server", async () => {
      const pod = network.probers["endpoint pod"];
      assert.equal(namespaceAt["endpoint pod"], servingPods["local-1"].name);
      for (const protocol of ["TCP", "UDP"] as const) {
        await server.serve(protocol, nodePort, "own server");
        for (const address of FAMILIES.flatMap((family) => UNSPECIFIED[family])) {
          const answers = await ask(pod, { protocol, address, port: nodePort }, 3);
          const met = answers.map((answer) => (answer.ok ? answer.pod : answer.detail));
          assert.deepEqual([...new Set(met)], ["own server"], `${protocol} ${address}: ${outcomes(answers)}`);
        }
      }
    });
  });
}
