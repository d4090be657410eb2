import assert from "node:assert/strict";
import { test } from "node:test";
import { offlineState } from "../../contract/inspect/offline-state.ts";
import { silentLogger } from "../../logging/logger.ts";
import { projectObjects } from "../cluster/manifests/read-manifests.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { serviceProbe } from "./service-probe.ts";

function cluster(spec: object = {}, nodeName = "node-b") {
  const metadata = { namespace: "shop", name: "web" };
  const labels = { "kubernetes.io/service-name": "web" };
  const objects = projectObjects([
    {
      apiVersion: "v1",
      kind: "Service",
      metadata,
      spec: { clusterIP: "10.96.0.1", ports: [{ name: "http", port: 80 }], ...spec },
    },
    {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { ...metadata, labels } },
      ...{ addressType: "IPv4", ports: [{ name: "http", port: 8080 }] },
      endpoints: ["10.1.0.1", "10.1.0.2", "10.1.0.3"].map((address) => ({ addresses: [address], nodeName })),
    },
  ]);
  const options = { family: "IPv4", nodeName: "node-a", allowExternalIPs: true, log: silentLogger } as const;
  return offlineState(objects, options).state;
}

/** A probe with these places answering, and a record of what it asked. */
function probe(state: ReturnType<typeof cluster>, answering: readonly string[], service = "shop/web:http") {
  const asked: string[] = [];
  const clock = new FakeClock();
  const look = serviceProbe({
    service,
    states: [state],
    topology: () => ({ nodeName: "node-a", zone: undefined }),
    clock,
    connect: async (address, port) => {
      asked.push(`${address}:${port}`);
      return answering.includes(`${address}:${port}`) ? undefined : "no answer";
    },
  });
  return { look, asked, clock };
}

test("what answers at the cluster IP is well, and one connection answers all who ask within a second", async () => {
  const { look, asked, clock } = probe(cluster(), ["10.96.0.1:80"]);
  assert.deepEqual(await Promise.all([look(), look()]), [undefined, undefined]);
  await clock.advance(999);
  await look();
  assert.deepEqual(asked, ["10.96.0.1:80"]);
  await clock.advance(1);
  await look();
  assert.equal(asked.length, 2);
});

test("only what an endpoint answers and the cluster IP does not is the fault of this node", async () => {
  assert.deepEqual(await probe(cluster(), ["10.1.0.2:8080"]).look(), {
    isFailure: true,
    reason: "no connection to its cluster IP (no answer), though its endpoint 10.1.0.2:8080 answers",
  });
  const { look, asked } = probe(cluster(), []);
  assert.deepEqual(await look(), {
    isFailure: false,
    reason: "no connection to its cluster IP (no answer), nor do its endpoints answer",
  });
  assert.deepEqual(asked, ["10.96.0.1:80", "10.1.0.1:8080", "10.1.0.2:8080"]);
});

test("what cannot answer here is not asked: a port that is not there, a Local policy without endpoints here", async () => {
  for (const { look, asked } of [
    probe(cluster(), [], "shop/web"),
    probe(cluster({ internalTrafficPolicy: "Local" }), []),
  ]) {
    assert.equal((await look())?.isFailure, false);
    assert.deepEqual(asked, []);
  }
  const { look } = probe(cluster({ internalTrafficPolicy: "Local" }, "node-a"), ["10.96.0.1:80"]);
  assert.equal(await look(), undefined);
});
