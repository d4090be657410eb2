/**
 * External addresses that are another Node's (docs/differences.md): where all Nodes are known, kube-ipvs0 does not take them, so
 * this node and its pods still reach that node. Upstream takes them, and cuts it off.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { startBackend } from "../../../testkit/net/pod-backend.ts";
import { bareAddress, nodeA, nodeB } from "../../../testkit/net/topology-spec.ts";
import { ask, outcomeOf } from "../flows/asking.ts";
import { addressesOf, nodeObjects, SERVICE_PORT, serviceObjects } from "../flows/cluster-objects.ts";
import { flowNetwork } from "../flows/flow-network.ts";
import { boundAddresses, virtualServers } from "./ipvs-node.ts";

const external = bareAddress(nodeB.lan.ipv4);
const loadBalancer = bareAddress(nodeB.lan.ipv6);
/** A port of node-b that no Service has. */
const SSH = 22;
const spec = { externalIPs: [external] };
const [service, ...slices] = serviceObjects({ name: "web", number: 1, endpoints: ["local-1"], spec });
const web = { ...(service as object), status: { loadBalancer: { ingress: [{ ip: loadBalancer }] } } };

test("an external and a load-balancer address that are another Node's stay that Node's", async (t) => {
  const { daemon, topology, probers } = await flowNetwork(t, "ipvs", []);
  await startBackend(topology.namespace(nodeB.name), nodeB.name).listen(
    [SERVICE_PORT, SSH].map((port) => ({ protocol: "TCP", port })),
  );
  const node = topology.namespace(nodeA.name);
  /** What pods and the node get there. */
  const answers = async (address: string, port: number) => {
    const asked = [probers.pod, probers.node].map((prober) => ask(prober, { protocol: "TCP", address, port }));
    return [...new Set((await Promise.all(asked)).flat().map((answer) => outcomeOf(answer).split(" ")[0]))];
  };
  const untilServed = (address: string) =>
    daemon.until(`a virtual server at ${address}`, async () =>
      (await virtualServers(node)).some(
        (line) => line.startsWith(`TCP ${address}:80 `) && line.includes("10.180.0.11"),
      ),
    );
  // Addresses are bound after virtual servers are written.
  const untilBound = (...addresses: readonly string[]) =>
    daemon.until(`the addresses ${addresses} and no others to be bound`, async () =>
      isDeepStrictEqual(await boundAddresses(node), addresses.toSorted()),
    );
  const clusterIP = addressesOf(1)["cluster IP"].IPv4;

  daemon.writeObjects([...nodeObjects, web, ...slices]);
  await untilServed(clusterIP);
  await untilBound(clusterIP);
  assert.deepEqual(
    (await virtualServers(node)).filter((line) => line.includes(external)),
    [],
  );
  for (const address of [external, loadBalancer])
    for (const port of [SERVICE_PORT, SSH]) assert.deepEqual(await answers(address, port), ["node-b"]);
  assert.deepEqual(await answers(clusterIP, SERVICE_PORT), ["local-1"]);

  // Without that Node its address is like any other: the device takes it, with all its ports.
  daemon.writeObjects([...nodeObjects.slice(0, 1), web, ...slices]);
  await untilServed(external);
  await untilBound(clusterIP, external);
});
