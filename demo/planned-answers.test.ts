import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProxyMode } from "../src/modes/registry.ts";
import { PlannedAnswers } from "./planned-answers.ts";
import { demoNode } from "./played-node.ts";
import { type AddressKind, type Position, positions, targetsOf } from "./targets.ts";
import { type ExampleEndpoint, exampleCluster, localPod, remotePod } from "./testing/example-cluster.ts";

const status = { loadBalancer: { ingress: [{ ip: "203.0.113.1" }] } };
const source = { pod: "10.180.0.250", node: "10.200.0.2", client: "10.200.0.100" };
const masqueraded = { here: "10.180.0.1", there: "10.200.0.2" };

/** `here=10.180.0.1 there=10.200.0.2`, `refused` or `dropped`. */
async function expected(
  spec: object,
  endpoints: readonly ExampleEndpoint[],
  kind: AddressKind,
  position: Position,
  mode: ProxyMode = "nftables",
): Promise<string> {
  const view = exampleCluster({ type: "LoadBalancer", ...spec }, endpoints, status);
  const answers = await PlannedAnswers.of(view, { mode }, demoNode);
  const target = targetsOf(view, demoNode.addresses, () => true).find((candidate) => candidate.kind === kind);
  assert.ok(target);
  const expectation = answers.answerTo(target, position);
  if (expectation.kind !== "answer") return expectation.kind;
  return [...expectation.peers]
    .map(([pod, peer]) => `${pod}=${peer}`)
    .sort()
    .join(" ");
}

const both = [localPod, remotePod];
const snat = `here=${masqueraded.here} there=${masqueraded.there}`;
const kept = (position: Position, ...pods: string[]) => pods.map((pod) => `${pod}=${source[position]}`).join(" ");
const external: readonly AddressKind[] = ["node port", "load balancer"];

test("a cluster IP reaches all pods and masquerades everybody but pods", async () => {
  assert.equal(await expected({}, both, "cluster IP", "pod"), kept("pod", "here", "there"));
  assert.equal(await expected({}, both, "cluster IP", "node"), snat);
  assert.equal(await expected({}, both, "cluster IP", "client"), snat);
});

test("with internalTrafficPolicy Local a cluster IP reaches local pods only, and drops where there are none", async () => {
  const spec = { internalTrafficPolicy: "Local" };
  assert.equal(await expected(spec, both, "cluster IP", "pod"), kept("pod", "here"));
  assert.equal(await expected(spec, both, "cluster IP", "client"), `here=${masqueraded.here}`);
  for (const position of positions) assert.equal(await expected(spec, [remotePod], "cluster IP", position), "dropped");
  assert.equal(await expected(spec, [remotePod], "node port", "client"), `there=${masqueraded.there}`);
});

test("external addresses masquerade everybody under the Cluster policy", async () => {
  for (const kind of external)
    for (const position of positions) assert.equal(await expected({}, both, kind, position), snat);
  assert.equal(await expected({}, both, "localhost", "node", "iptables"), snat);
  assert.equal(await expected({}, both, "localhost", "node", "nftables"), "refused", "it is not led there");
});

test("under the Local policy outside clients reach local pods only, and all but the node keep their address", async () => {
  const spec = { externalTrafficPolicy: "Local" };
  for (const kind of external) {
    assert.equal(await expected(spec, both, kind, "pod"), kept("pod", "here", "there"));
    assert.equal(await expected(spec, both, kind, "node"), snat);
    assert.equal(await expected(spec, both, kind, "client"), kept("client", "here"));
    assert.equal(await expected(spec, [remotePod], kind, "client"), "dropped");
    assert.equal(await expected(spec, [remotePod], kind, "pod"), kept("pod", "there"));
  }
});

test("a service without usable endpoints refuses on every address, with any policies", async () => {
  const gone = { ...localPod, conditions: { ready: false, serving: false, terminating: true } };
  for (const spec of [{}, { externalTrafficPolicy: "Local", internalTrafficPolicy: "Local" }]) {
    for (const endpoints of [[], [gone]]) {
      for (const kind of ["cluster IP", ...external] as const) {
        for (const position of positions) assert.equal(await expected(spec, endpoints, kind, position), "refused");
      }
    }
  }
});

test("in iptables mode the node's own packets to an external address without endpoints are not answered", async () => {
  const iptables = "iptables";
  assert.equal(await expected({}, [], "load balancer", "node", iptables), "dropped");
  assert.equal(await expected({}, [], "load balancer", "client", iptables), "refused");
  assert.equal(await expected({}, [], "node port", "node", iptables), "refused");
  assert.equal(await expected({}, [], "cluster IP", "node", iptables), "refused");
});

test("in userspace mode the proxy asks in its own name, and otherwise as the policies say", async () => {
  const userspace = "userspace";
  const here = await expected({}, [localPod], "cluster IP", "client", userspace);
  const local = { externalTrafficPolicy: "Local", internalTrafficPolicy: "Local" };
  for (const position of positions) assert.equal(await expected(local, both, "cluster IP", position, userspace), here);
  for (const kind of ["node port", "load balancer"] as const) {
    assert.equal(await expected(local, both, kind, "client", userspace), here);
    assert.equal(await expected(local, [remotePod], kind, "client", userspace), "dropped");
    for (const position of ["pod", "node"] as const)
      assert.equal(await expected(local, both, kind, position, userspace), snat);
  }
  const external = { externalIPs: ["198.51.100.1"] };
  assert.equal(await expected(external, both, "external IP", "client", userspace), snat);
  assert.equal(await expected(external, both, "external IP", "pod", userspace), "dropped");
  assert.equal(await expected(external, both, "external IP", "node", userspace), "dropped");
  for (const position of positions) {
    assert.equal(await expected({}, [], "cluster IP", position, userspace), "refused");
    assert.equal(await expected(external, [], "external IP", position, userspace), "refused");
  }
  const ranges = { loadBalancerSourceRanges: ["10.200.0.64/26"] };
  assert.equal(await expected(ranges, both, "load balancer", "pod", userspace), "dropped");
});

test("source ranges filter the load-balancer address only", async () => {
  const spec = { loadBalancerSourceRanges: ["10.200.0.64/26"] };
  assert.equal(await expected(spec, both, "load balancer", "client"), snat);
  assert.equal(await expected(spec, both, "load balancer", "node"), "dropped");
  assert.equal(await expected(spec, both, "load balancer", "pod"), "dropped");
  assert.equal(await expected(spec, both, "node port", "node"), snat);
  assert.equal(await expected({ loadBalancerSourceRanges: ["fd00::/8"] }, both, "load balancer", "pod"), snat);
  assert.equal(
    await expected({ loadBalancerSourceRanges: ["10.0.0.0/32", "0.0.0.0/0"] }, both, "load balancer", "pod"),
    snat,
  );
});

test("terminating endpoints serve where no ready one does, for each policy on its own", async () => {
  const leaving = { ...localPod, conditions: { ready: false, serving: true, terminating: true } };
  const spec = { externalTrafficPolicy: "Local" };
  assert.equal(await expected(spec, [leaving, remotePod], "node port", "client"), kept("client", "here"));
  assert.equal(await expected(spec, [leaving, remotePod], "cluster IP", "pod"), kept("pod", "there"));
  assert.equal(await expected(spec, [leaving], "cluster IP", "pod"), kept("pod", "here"));
});

test("zone hints keep requests in the node's zone only when every ready endpoint has one", async () => {
  const hinted = (endpoint: ExampleEndpoint, zone: string) => ({ ...endpoint, hints: { forZones: [{ name: zone }] } });
  const near = hinted(localPod, "zone-1");
  assert.equal(await expected({}, [near, hinted(remotePod, "zone-2")], "cluster IP", "pod"), kept("pod", "here"));
  assert.equal(await expected({}, [near, remotePod], "cluster IP", "pod"), kept("pod", "here", "there"));
  const elsewhere = [hinted(localPod, "zone-2"), hinted(remotePod, "zone-2")];
  assert.equal(await expected({}, elsewhere, "cluster IP", "pod"), kept("pod", "here", "there"));
});

test("node hints come before zone hints", async () => {
  const hints = (zone: string, node: string) => ({ hints: { forZones: [{ name: zone }], forNodes: [{ name: node }] } });
  const endpoints = [
    { ...localPod, ...hints("zone-2", "node-a") },
    { ...remotePod, ...hints("zone-1", "node-b") },
  ];
  assert.equal(await expected({}, endpoints, "cluster IP", "pod"), kept("pod", "here"));
});

test("ipvs: a Local policy binds everybody, as long as there is a local endpoint", async () => {
  const ipvs = "ipvs";
  const external = { externalTrafficPolicy: "Local" };
  for (const position of ["pod", "client"] as const) {
    assert.equal(await expected(external, both, "load balancer", position, ipvs), kept(position, "here"));
  }
  assert.equal(await expected(external, both, "load balancer", "node", ipvs), "here=203.0.113.1");
  assert.equal(await expected(external, both, "node port", "node", ipvs), kept("node", "here"));
  assert.equal(await expected({}, both, "load balancer", "node", ipvs), snat);
});

test("ipvs: without a local endpoint others answer, where their answers come back", async () => {
  const ipvs = "ipvs";
  const external = { externalTrafficPolicy: "Local" };
  assert.equal(await expected(external, [remotePod], "load balancer", "pod", ipvs), kept("pod", "there"));
  assert.equal(await expected(external, [remotePod], "load balancer", "client", ipvs), "dropped");
  assert.equal(await expected(external, [remotePod], "load balancer", "node", ipvs), "dropped");
  assert.equal(await expected(external, [remotePod], "node port", "node", ipvs), kept("node", "there"));
  assert.equal(await expected(external, [remotePod], "node port", "client", ipvs), "dropped");
  const internal = { internalTrafficPolicy: "Local" };
  assert.equal(await expected(internal, [remotePod], "cluster IP", "pod", ipvs), kept("pod", "there"));
  assert.equal(await expected(internal, [remotePod], "cluster IP", "node", ipvs), `there=${masqueraded.there}`);
});

test("ipvs: without any endpoint everybody is refused", async () => {
  for (const kind of ["cluster IP", "node port", "load balancer"] as const) {
    for (const position of positions) assert.equal(await expected({}, [], kind, position, "ipvs"), "refused");
  }
});
