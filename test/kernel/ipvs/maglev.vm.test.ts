/**
 * The scheduler mh for Services that ask for a hash; and while endpoints end: their real servers stay with weight 0, and a client that
 * hashes to one needs another.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { nodeA } from "../../../testkit/net/topology-spec.ts";
import { ask, outcomeOf } from "../flows/asking.ts";
import { addressesOf, clusterOf, type ServiceSpec, type ServingPod, servingPods } from "../flows/cluster-objects.ts";
import { addressOf, flowNetwork } from "../flows/flow-network.ts";
import { HeldConnection } from "../flows/held-connection.ts";
import { virtualServers } from "./ipvs-node.ts";

const service = (endpoints: readonly ServingPod[]): ServiceSpec[] => [{ name: "web", number: 1, endpoints }];
const clusterIP = addressesOf(1)["cluster IP"].IPv4;
const target = addressOf(1, "cluster IP", "TCP", "IPv4");
const ASKED = 24;

test("a client whose hash is an ending endpoint's is answered by another", async (t) => {
  const network = await flowNetwork(t, "ipvs", service(["local-1", "local-2", "remote-1"]), {
    config: { ipvs: { scheduler: "mh" } },
  });
  const { daemon, topology, probers } = network;
  const node = topology.namespace(nodeA.name);
  const held: HeldConnection[] = [];
  // Some of many are led to local-1, whose real server stays for them.
  for (let count = 0; count < ASKED; count += 1)
    held.push(await HeldConnection.open(topology.namespace("client-pod"), target));
  daemon.writeObjects(clusterOf(service(["local-2", "remote-1"])));
  const ending = `${servingPods["local-1"].ipv4}:`;
  await daemon.until("the endpoint to lose its weight", async () => {
    const line = (await virtualServers(node)).find((text) => text.startsWith(`TCP ${clusterIP}:80 `)) ?? "";
    const words = line.split(" ");
    return isDeepStrictEqual(words[words.findIndex((word) => word.startsWith(ending)) + 1], "0");
  });
  const answers = [...(await ask(probers.pod, target, ASKED))];
  const failed = answers.filter((answer) => !answer.ok);
  assert.deepEqual(failed, [], `${failed.length} of ${answers.length} connections fail`);
});

test("a Service that asks for a hash leads a client to one pod, and its flows to all", async (t) => {
  const pods: readonly ServingPod[] = ["local-1", "local-2", "remote-1"];
  const asking = (number: number, balancing: string): ServiceSpec => ({
    name: `by-${balancing.toLowerCase()}`,
    number,
    endpoints: pods,
  });
  const specs = [asking(1, "SourceHash"), asking(2, "FlowHash")];
  const network = await flowNetwork(t, "ipvs", specs);
  const { daemon, probers, topology } = network;
  const node = topology.namespace(nodeA.name);
  const annotated = clusterOf(specs).map((object) => {
    const { kind, metadata, ...rest } = object as { kind: string; metadata: { name: string } };
    const balancing = metadata.name === "by-flowhash" ? "FlowHash" : "SourceHash";
    const annotations = { "kube-proxy-ts/balancing": balancing };
    return kind === "Service" ? { kind, metadata: { ...metadata, annotations }, ...rest } : object;
  });
  daemon.writeObjects(annotated);
  await daemon.until("the scheduler mh", async () => {
    const servers = (await virtualServers(node)).filter((text) => text.includes(":80 "));
    return servers.length > 0 && servers.every((text) => text.includes(":80 mh"));
  });
  const podsFor = async (number: number) => {
    const answers = await ask(probers.pod, addressOf(number, "cluster IP", "TCP", "IPv4"), ASKED);
    assert.deepEqual(
      answers.filter(({ ok }) => !ok),
      [],
    );
    return new Set(answers.map((answer) => outcomeOf(answer).split(" ")[0]));
  };
  assert.equal((await podsFor(1)).size, 1, "one client has one pod");
  assert.ok((await podsFor(2)).size > 1, "its flows have several");
});
