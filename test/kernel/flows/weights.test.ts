/** Weights of EndpointSlices with packets: shares, and an endpoint that is drained under open connections. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, outcomeOf } from "./asking.ts";
import { clusterOf, FAMILIES, type ServiceSpec, type ServingPod, servingPods } from "./cluster-objects.ts";
import { namespaceAt } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { HeldConnection } from "./held-connection.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";

const CONNECTIONS = 400;
/** Standard deviations of the binomial distribution: 99.9 % of samples are within. */
const WITHIN = 3.29;

type Weights = Partial<Record<ServingPod, string>>;

/** One slice for each pod and family, with its weight. */
function weighted(service: ServiceSpec, weights: Weights): unknown[] {
  return clusterOf([service]).flatMap((object) => {
    const slice = object as { kind: string; metadata: { name: string }; endpoints?: { targetRef: { name: string } }[] };
    if (slice.kind !== "EndpointSlice") return [object];
    return (slice.endpoints ?? []).map((endpoint) => {
      const pod = endpoint.targetRef.name as ServingPod;
      const annotations = { "kube-proxy-ts/weight": weights[pod] };
      const metadata = { ...slice.metadata, name: `${slice.metadata.name}-${pod}`, annotations };
      return { ...slice, metadata, endpoints: [endpoint] };
    });
  });
}

for (const mode of ALL_MODES) {
  if (!protocolsOf(mode).includes("TCP")) continue;
  test(`${mode}: weights 1 and 9, then 9 is drained`, { skip: kernelSkip }, async (t) => {
    const pods = Object.keys(servingPods) as ServingPod[];
    const web: ServiceSpec = { name: "web", number: 1, endpoints: pods };
    const sticky: ServiceSpec = { ...web, name: "sticky", number: 2, spec: { sessionAffinity: "ClientIP" } };
    const network = await flowNetwork(t, mode, [web, sticky]);
    const { daemon, probers, topology, cgroup } = network;
    const podOf = async (service: number, count: number, family: (typeof FAMILIES)[number]) => {
      const answers = await ask(probers.pod, addressOf(service, "cluster IP", "TCP", family), count);
      return answers.map((answer) => outcomeOf(answer).split(" ")[0] ?? "");
    };
    /** Waits until it is in force: a sync that had begun before may end after the file is written. */
    const set = async (weights: Weights): Promise<void> => {
      const objects = [...weighted(web, weights), ...weighted(sticky, weights)];
      daemon.writeObjects([...new Map(objects.map((one) => [JSON.stringify(one), one])).values()]);
      const open = pods.filter((pod) => weights[pod] !== "0");
      const wanted = open.length > 0 ? open : ["refused"];
      for (const family of FAMILIES) {
        await daemon.until(`connections to ${wanted} only`, async () => {
          const got = await podOf(1, 40, family);
          return got.every((pod) => wanted.some((one) => one === pod)) && wanted.every((one) => got.includes(one));
        });
      }
    };
    await set({ "local-1": "1", "local-2": "0", "remote-1": "9" });
    for (const family of FAMILIES) {
      const got = await podOf(1, CONNECTIONS, family);
      const light = got.filter((pod) => pod === "local-1").length;
      assert.deepEqual([...new Set(got)].sort(), ["local-1", "remote-1"], family);
      const limit = WITHIN * Math.sqrt(CONNECTIONS * 0.1 * 0.9);
      // Userspace mode takes turns.
      const furthest = traitsOf[mode].carriesTraffic ? 1 : limit;
      assert.ok(Math.abs(light - CONNECTIONS * 0.1) <= furthest, `${family}: ${light} of ${CONNECTIONS}`);
    }
    const clients: string[] = [];
    for (const family of FAMILIES) clients.push(...(await podOf(2, 20, family)));
    await set({ "local-1": "0", "local-2": "1", "remote-1": "1" });
    const held: HeldConnection[] = [];
    for (const family of FAMILIES) {
      for (let count = 0; count < 8; count += 1) {
        const from = topology.namespace(namespaceAt.pod);
        held.push(await HeldConnection.open(from, addressOf(1, "cluster IP", "TCP", family), cgroup));
      }
    }
    await set({ "local-1": "0", "local-2": "1", "remote-1": "0" });
    for (const family of FAMILIES) {
      assert.deepEqual(new Set(await podOf(1, 40, family)), new Set(["local-2"]), `${family}: no new connections`);
      assert.deepEqual(new Set(await podOf(2, 10, family)), new Set(["local-2"]), `${family}: over session affinity`);
    }
    const answered = await Promise.all(held.map((one) => one.use()));
    assert.ok(
      answered.every((pod) => pod === "remote-1" || pod === "local-2"),
      answered.join(),
    );
    assert.ok(answered.includes("remote-1"), "open connections stay");
    await set({ "local-1": "0", "local-2": "0", "remote-1": "0" });
    assert.deepEqual(new Set(await podOf(1, 4, "IPv4")), new Set(["refused"]), "all drained: as without endpoints");
  });
}
