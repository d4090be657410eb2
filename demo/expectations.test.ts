import assert from "node:assert/strict";
import { test } from "node:test";
import { modeNamed } from "../src/dataplane/registry.ts";
import type { ModeTraits } from "../src/dataplane/traits.ts";
import { networkFacts } from "./demo-network.ts";
import { type AddressKind, expectationOf, type Position, positions } from "./expectations.ts";
import { demoNode } from "./played-node.ts";
import { targetsOf } from "./targets.ts";
import { type ExampleEndpoint, exampleCluster, localPod, remotePod } from "./testing/example-cluster.ts";

const status = { loadBalancer: { ingress: [{ ip: "203.0.113.1" }] } };
const source = { pod: "10.180.0.250", node: "10.200.0.2", client: "10.200.0.100" };
const masqueraded = { here: "10.180.0.1", there: "10.200.0.2" };

/** `here=10.180.0.1 there=10.200.0.2`, `refused` or `dropped`. */
function expected(
  spec: object,
  endpoints: readonly ExampleEndpoint[],
  kind: AddressKind,
  position: Position,
  traits: ModeTraits = modeNamed("nftables").traits,
): string {
  const view = exampleCluster({ type: "LoadBalancer", ...spec }, endpoints, status);
  const target = targetsOf(view, demoNode.addresses, modeNamed("iptables").traits).find(
    (candidate) => candidate.kind === kind,
  );
  assert.ok(target);
  const expectation = expectationOf(view, target, position, networkFacts(demoNode, view.sockets).IPv4, traits);
  if (expectation.kind !== "answer") return expectation.kind;
  return [...expectation.peers].map(([pod, peer]) => `${pod}=${peer}`).join(" ");
}

const both = [localPod, remotePod];
const snat = `here=${masqueraded.here} there=${masqueraded.there}`;
const kept = (position: Position, ...pods: string[]) => pods.map((pod) => `${pod}=${source[position]}`).join(" ");
const external: readonly AddressKind[] = ["node port", "load balancer"];

test("a cluster IP reaches all pods and masquerades everybody but pods", () => {
  assert.equal(expected({}, both, "cluster IP", "pod"), kept("pod", "here", "there"));
  assert.equal(expected({}, both, "cluster IP", "node"), snat);
  assert.equal(expected({}, both, "cluster IP", "client"), snat);
});

test("with internalTrafficPolicy Local a cluster IP reaches local pods only, and drops where there are none", () => {
  const spec = { internalTrafficPolicy: "Local" };
  assert.equal(expected(spec, both, "cluster IP", "pod"), kept("pod", "here"));
  assert.equal(expected(spec, both, "cluster IP", "client"), `here=${masqueraded.here}`);
  for (const position of positions) assert.equal(expected(spec, [remotePod], "cluster IP", position), "dropped");
  assert.equal(expected(spec, [remotePod], "node port", "client"), `there=${masqueraded.there}`);
});

test("external addresses masquerade everybody under the Cluster policy", () => {
  for (const kind of external) for (const position of positions) assert.equal(expected({}, both, kind, position), snat);
  assert.equal(expected({}, both, "localhost", "node"), snat);
});

test("under the Local policy outside clients reach local pods only, and all but the node keep their address", () => {
  const spec = { externalTrafficPolicy: "Local" };
  for (const kind of external) {
    assert.equal(expected(spec, both, kind, "pod"), kept("pod", "here", "there"));
    assert.equal(expected(spec, both, kind, "node"), snat);
    assert.equal(expected(spec, both, kind, "client"), kept("client", "here"));
    assert.equal(expected(spec, [remotePod], kind, "client"), "dropped");
    assert.equal(expected(spec, [remotePod], kind, "pod"), kept("pod", "there"));
  }
});

test("a service without usable endpoints refuses on every address, with any policies", () => {
  const gone = { ...localPod, conditions: { ready: false, serving: false, terminating: true } };
  for (const spec of [{}, { externalTrafficPolicy: "Local", internalTrafficPolicy: "Local" }]) {
    for (const endpoints of [[], [gone]]) {
      for (const kind of ["cluster IP", ...external] as const) {
        for (const position of positions) assert.equal(expected(spec, endpoints, kind, position), "refused");
      }
    }
  }
});

test("in iptables mode the node's own packets to an external address without endpoints are not answered", () => {
  const iptables = modeNamed("iptables").traits;
  assert.equal(expected({}, [], "load balancer", "node", iptables), "dropped");
  assert.equal(expected({}, [], "load balancer", "client", iptables), "refused");
  assert.equal(expected({}, [], "node port", "node", iptables), "refused");
  assert.equal(expected({}, [], "cluster IP", "node", iptables), "refused");
});

test("in userspace mode the proxy asks in its own name, and otherwise as the policies say", () => {
  const userspace = modeNamed("userspace").traits;
  const here = expected({}, [localPod], "cluster IP", "client", userspace);
  const local = { externalTrafficPolicy: "Local", internalTrafficPolicy: "Local" };
  for (const position of positions) assert.equal(expected(local, both, "cluster IP", position, userspace), here);
  for (const kind of ["node port", "load balancer"] as const) {
    assert.equal(expected(local, both, kind, "client", userspace), here);
    assert.equal(expected(local, [remotePod], kind, "client", userspace), "dropped");
    for (const position of ["pod", "node"] as const)
      assert.equal(expected(local, both, kind, position, userspace), snat);
  }
  const external = { externalIPs: ["198.51.100.1"] };
  assert.equal(expected(external, both, "external IP", "client", userspace), snat);
  assert.equal(expected(external, both, "external IP", "pod", userspace), "dropped");
  assert.equal(expected(external, both, "external IP", "node", userspace), "dropped");
  for (const position of positions) {
    assert.equal(expected({}, [], "cluster IP", position, userspace), "refused");
    assert.equal(expected(external, [], "external IP", position, userspace), "refused");
  }
  const ranges = { loadBalancerSourceRanges: ["10.200.0.64/26"] };
  assert.equal(expected(ranges, both, "load balancer", "pod", userspace), "dropped");
});

test("source ranges filter the load-balancer address only", () => {
  const spec = { loadBalancerSourceRanges: ["10.200.0.64/26"] };
  assert.equal(expected(spec, both, "load balancer", "client"), snat);
  assert.equal(expected(spec, both, "load balancer", "node"), "dropped");
  assert.equal(expected(spec, both, "load balancer", "pod"), "dropped");
  assert.equal(expected(spec, both, "node port", "node"), snat);
  assert.equal(expected({ loadBalancerSourceRanges: ["fd00::/8"] }, both, "load balancer", "pod"), snat);
  assert.equal(
    expected({ loadBalancerSourceRanges: ["10.0.0.0/32", "0.0.0.0/0"] }, both, "load balancer", "pod"),
    snat,
  );
});

test("terminating endpoints serve where no ready one does, for each policy on its own", () => {
  const leaving = { ...localPod, conditions: { ready: false, serving: true, terminating: true } };
  const spec = { externalTrafficPolicy: "Local" };
  assert.equal(expected(spec, [leaving, remotePod], "node port", "client"), kept("client", "here"));
  assert.equal(expected(spec, [leaving, remotePod], "cluster IP", "pod"), kept("pod", "there"));
  assert.equal(expected(spec, [leaving], "cluster IP", "pod"), kept("pod", "here"));
});

test("zone hints keep requests in the node's zone only when every ready endpoint has one", () => {
  const hinted = (endpoint: ExampleEndpoint, zone: string) => ({ ...endpoint, hints: { forZones: [{ name: zone }] } });
  const near = hinted(localPod, "zone-1");
  assert.equal(expected({}, [near, hinted(remotePod, "zone-2")], "cluster IP", "pod"), kept("pod", "here"));
  assert.equal(expected({}, [near, remotePod], "cluster IP", "pod"), kept("pod", "here", "there"));
  const elsewhere = [hinted(localPod, "zone-2"), hinted(remotePod, "zone-2")];
  assert.equal(expected({}, elsewhere, "cluster IP", "pod"), kept("pod", "here", "there"));
});

test("node hints come before zone hints", () => {
  const hints = (zone: string, node: string) => ({ hints: { forZones: [{ name: zone }], forNodes: [{ name: node }] } });
  const endpoints = [
    { ...localPod, ...hints("zone-2", "node-a") },
    { ...remotePod, ...hints("zone-1", "node-b") },
  ];
  assert.equal(expected({}, endpoints, "cluster IP", "pod"), kept("pod", "here"));
});

test("ipvs: a Local policy binds everybody, as long as there is a local endpoint", () => {
  const ipvs = modeNamed("ipvs").traits;
  const external = { externalTrafficPolicy: "Local" };
  for (const position of ["pod", "client"] as const) {
    assert.equal(expected(external, both, "load balancer", position, ipvs), kept(position, "here"));
  }
  assert.equal(expected(external, both, "load balancer", "node", ipvs), "here=203.0.113.1");
  assert.equal(expected(external, both, "node port", "node", ipvs), kept("node", "here"));
  assert.equal(expected({}, both, "load balancer", "node", ipvs), snat);
});

test("ipvs: without a local endpoint others answer, where their answers come back", () => {
  const ipvs = modeNamed("ipvs").traits;
  const external = { externalTrafficPolicy: "Local" };
  assert.equal(expected(external, [remotePod], "load balancer", "pod", ipvs), kept("pod", "there"));
  assert.equal(expected(external, [remotePod], "load balancer", "client", ipvs), "dropped");
  assert.equal(expected(external, [remotePod], "load balancer", "node", ipvs), "dropped");
  assert.equal(expected(external, [remotePod], "node port", "node", ipvs), kept("node", "there"));
  assert.equal(expected(external, [remotePod], "node port", "client", ipvs), "dropped");
  const internal = { internalTrafficPolicy: "Local" };
  assert.equal(expected(internal, [remotePod], "cluster IP", "pod", ipvs), kept("pod", "there"));
  assert.equal(expected(internal, [remotePod], "cluster IP", "node", ipvs), `there=${masqueraded.there}`);
});

test("ipvs: without any endpoint everybody is refused", () => {
  for (const kind of ["cluster IP", "node port", "load balancer"] as const) {
    for (const position of positions)
      assert.equal(expected({}, [], kind, position, modeNamed("ipvs").traits), "refused");
  }
});
