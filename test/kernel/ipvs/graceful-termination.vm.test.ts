/** Connections outlive their endpoint, in a kernel that has IPVS: the real server stays until the last of them ends. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { bareAddress, nodeA } from "../../../testkit/net/topology-spec.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import { ask, outcomes } from "../flows/asking.ts";
import { addressesOf, clusterOf, type ServiceSpec, type ServingPod, servingPods } from "../flows/cluster-objects.ts";
import { addressOf, flowNetwork } from "../flows/flow-network.ts";
import { HeldConnection } from "../flows/held-connection.ts";
import { virtualServers } from "./ipvs-node.ts";

/** Real servers are checked every minute. */
const REMOVAL_LIMIT_MS = 100_000 * PATIENCE;

const service = (endpoints: readonly ServingPod[]): ServiceSpec[] => [{ name: "web", number: 1, endpoints }];
const clusterIP = addressesOf(1)["cluster IP"].IPv4;

test("an open connection survives its endpoint's removal, a restart in the middle too, and takes the real server along", async (t) => {
  const network = await flowNetwork(t, "ipvs", service(["local-1"]));
  const { daemon, topology, probers } = network;
  const node = topology.namespace(nodeA.name);
  const weightsAt = async (address: string, port: number): Promise<Record<string, number>> => {
    const line = (await virtualServers(node)).find((text) => text.startsWith(`TCP ${address}:${port} `));
    const [, , , ...words] = line?.split(" ") ?? [];
    const pods = Object.entries(servingPods);
    const weights: Record<string, number> = {};
    for (let at = 0; at < words.length; at += 2) {
      const pod = pods.find(([, { ipv4 }]) => words[at]?.startsWith(`${ipv4}:`))?.[0] ?? words[at] ?? "";
      weights[pod] = Number(words[at + 1]);
    }
    return weights;
  };
  const weights = () => weightsAt(clusterIP, 80);
  const untilWeights = (what: string, wanted: Record<string, number>, limitMs?: number) =>
    daemon.until(what, async () => isDeepStrictEqual(await weights(), wanted), limitMs);

  const target = addressOf(1, "cluster IP", "TCP", "IPv4");
  const nodePort = { ...addressOf(1, "node port", "TCP", "IPv4"), address: bareAddress(nodeA.lan.ipv4) };
  // A connection that is closed in an orderly way is remembered for two minutes, one that is reset for ten seconds.
  const [held, used, outside] = await Promise.all([
    HeldConnection.open(topology.namespace("client-pod"), target),
    HeldConnection.open(topology.namespace("client"), nodePort),
    HeldConnection.open(topology.namespace("client"), nodePort),
  ]);

  daemon.writeObjects(clusterOf(service(["remote-1"])));
  const drained = { "remote-1": 1, "local-1": 0 };
  await untilWeights("the endpoint to lose its weight", drained);
  await daemon.until("it to lose its weight at the node port", async () =>
    isDeepStrictEqual(await weightsAt(nodePort.address, nodePort.port), drained),
  );
  assert.deepEqual(
    outcomes(await ask(probers.pod, target, 8)).map((text) => text.split(" ")[0]),
    ["remote-1"],
    "new connections go elsewhere",
  );
  assert.equal(await used.use(), "local-1");

  await daemon.stop("SIGKILL");
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  assert.deepEqual(await weights(), { "remote-1": 1, "local-1": 0 }, "after a kill and a restart");
  assert.equal(await outside.use(), "local-1", "a restart cuts no connection");

  await held.reset();
  await untilWeights("the real server to go", { "remote-1": 1 }, REMOVAL_LIMIT_MS);
});

test("an endpoint that comes back while it drains takes connections again, and keeps those that it has", async (t) => {
  const { daemon, topology, probers } = await flowNetwork(t, "ipvs", service(["local-1"]));
  const target = addressOf(1, "cluster IP", "TCP", "IPv4");
  const held = await HeldConnection.open(topology.namespace("client-pod"), target);
  const node = topology.namespace(nodeA.name);
  const until = (what: string, text: string) =>
    daemon.until(what, async () =>
      (await virtualServers(node)).some((line) => line.startsWith(`TCP ${clusterIP}:80 rr ${text}`)),
    );
  daemon.writeObjects(clusterOf(service([])));
  await until("the endpoint to lose its weight", "10.180.0.11:8080 0");
  daemon.writeObjects(clusterOf(service(["local-1"])));
  await until("the endpoint to get its weight back", "10.180.0.11:8080 1");
  const [answer] = await ask(probers.pod, target);
  assert.ok(answer?.ok);
  assert.equal(await held.use(), "local-1");
});
