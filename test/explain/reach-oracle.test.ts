/**
 * What `explain` says that clients meet is what the demo expects them to meet: the demo's table is written from the reference
 * and is held by real packets. Random services, endpoints, modes, both kinds of policies.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { clusterViewOf, parseDemoObject } from "../../demo/cluster-view.ts";
import { networkFacts } from "../../demo/demo-network.ts";
import { type Position as DemoPosition, expectationOf } from "../../demo/expectations.ts";
import { demoNode } from "../../demo/played-node.ts";
import { targetsOf } from "../../demo/targets.ts";
import { projectObjects } from "../../src/cluster/manifests/read-manifests.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../../src/config/defaults.ts";
import { checkConfig } from "../../src/config/validate.ts";
import { modesOn } from "../../src/dataplane/registry.ts";
import { explainedCluster, explainPorts } from "../../src/explain/explained-cluster.ts";
import type { ExplainedFrontend, PortExplanation } from "../../src/explain/explanation.ts";
import type { Encounter } from "../../src/explain/reach.ts";
import fc from "../../testkit/support/fast-check.ts";

const KIND = {
  "cluster IP": "cluster-ip",
  "node port": "node-port",
  localhost: "node-port",
  "external IP": "external-ip",
  "load balancer": "load-balancer",
} as const;
const POSITION = { pod: "pod", node: "node", client: "outside" } as const;
/** The demo's outside client is 10.200.0.100, its node 10.200.0.2, its pods 10.180.0.0/24. */
const RANGES = ["10.200.0.64/26", "10.200.0.0/26", "10.180.0.0/16", "192.0.2.0/24"];

const policy = fc.constantFrom("Cluster", "Local");
const endpointArbitrary = fc.record({
  node: fc.constantFrom("node-a", "node-b"),
  state: fc.constantFrom("ready", "terminating", "gone", "not ready"),
  zone: fc.constantFrom(undefined, "zone-1", "zone-2"),
  forNode: fc.constantFrom(undefined, "node-a", "node-b"),
});
const caseArbitrary = fc.record({
  externalTrafficPolicy: policy,
  internalTrafficPolicy: policy,
  type: fc.constantFrom("ClusterIP", "NodePort", "LoadBalancer"),
  isSticky: fc.boolean(),
  externalIP: fc.boolean(),
  ranges: fc.subarray(RANGES),
  endpoints: fc.array(endpointArbitrary, { maxLength: 4 }),
});
type Case = typeof caseArbitrary extends fc.Arbitrary<infer T> ? T : never;

const CONDITIONS = {
  ready: { ready: true },
  terminating: { ready: false, serving: true, terminating: true },
  gone: { ready: false, serving: false, terminating: true },
  "not ready": { ready: false },
} as const;

function documents(one: Case): object[] {
  const node = (name: string, zone: string, address: string) => ({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { "topology.kubernetes.io/zone": zone } },
    spec: {
      podCIDR: name === "node-a" ? "10.180.0.0/24" : "10.180.1.0/24",
      podCIDRs: [name === "node-a" ? "10.180.0.0/24" : "10.180.1.0/24"],
    },
    status: { addresses: [{ type: "InternalIP", address }] },
  });
  const isBalanced = one.type === "LoadBalancer";
  return [
    node("node-a", "zone-1", "10.200.0.2"),
    node("node-b", "zone-2", "10.200.0.3"),
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "shop", name: "web" },
      spec: {
        type: one.type,
        clusterIP: "10.96.0.10",
        clusterIPs: ["10.96.0.10"],
        ipFamilies: ["IPv4"],
        ports: [{ name: "http", port: 80, ...(one.type !== "ClusterIP" && { nodePort: 30080 }) }],
        internalTrafficPolicy: one.internalTrafficPolicy,
        ...(one.type !== "ClusterIP" && { externalTrafficPolicy: one.externalTrafficPolicy }),
        ...(one.isSticky && { sessionAffinity: "ClientIP" }),
        ...(one.externalIP && { externalIPs: ["198.51.100.7"] }),
        ...(isBalanced && { loadBalancerSourceRanges: one.ranges, healthCheckNodePort: 31000 }),
      },
      status: isBalanced ? { loadBalancer: { ingress: [{ ip: "203.0.113.7" }] } } : {},
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
      addressType: "IPv4",
      ports: [{ name: "http", port: 8080 }],
      endpoints: one.endpoints.map(({ node: nodeName, state, zone, forNode }, index) => ({
        addresses: [`10.180.${nodeName === "node-a" ? 0 : 1}.${11 + index}`],
        nodeName,
        conditions: CONDITIONS[state],
        targetRef: { kind: "Pod", name: `pod-${index}` },
        hints: {
          ...(zone !== undefined && { forZones: [{ name: zone }] }),
          ...(forNode !== undefined && { forNodes: [{ name: forNode }] }),
        },
      })),
    },
  ];
}

/** `answered by 10.180.0.11 10.180.1.12, kept`, `refused`, `dropped`. */
function explainedFate(
  frontend: ExplainedFrontend,
  encounter: Encounter,
  members: readonly string[],
  isListed: boolean,
): string {
  assert.equal(frontend.owner, null);
  if (encounter.outcome === "passed-by") return "dropped";
  if (encounter.onlyListedSources && !isListed) return "dropped";
  if (encounter.outcome !== "answered") return encounter.outcome;
  return `answered by ${members.join(" ")}, ${encounter.source === "masqueraded" ? "masqueraded" : "kept"}`;
}

function isBarredWithoutEndpoints({ endpoints }: PortExplanation, kind: string): boolean {
  return (
    kind === "load balancer" && !endpoints.some(({ cluster, local }) => cluster?.used === true || local?.used === true)
  );
}

// The demo is a Linux node.
for (const mode of modesOn("linux")) {
  test(`what clients meet in ${mode.name} mode`, async () => {
    await fc.assert(
      fc.asyncProperty(caseArbitrary, async (one) => {
        const raw = documents(one);
        const view = clusterViewOf(
          raw.map((document) => {
            const parsed = parseDemoObject(document);
            assert.ok(parsed?.ok === true, JSON.stringify(parsed));
            return parsed.object;
          }),
        );
        const checked = checkConfig({
          ...applyPlatformDefaults(
            resolveDocument({ ...EMPTY_DOCUMENT, mode: mode.name, clusterCIDR: "10.180.0.0/16" }),
          ),
          hostnameOverride: "node-a",
        });
        assert.ok(checked.ok);
        const objects = projectObjects(raw);
        assert.deepEqual(objects.problems, []);
        const cluster = await explainedCluster(objects, checked.config, ["IPv4"], () => {});
        const [explained] = explainPorts(cluster, ["shop/web:http/TCP"]);
        assert.ok(explained);
        for (const target of targetsOf(view, demoNode.addresses, mode.traits)) {
          // The node port of 127.0.0.1 is one more address of the node port.
          if (target.kind === "localhost") continue;
          const frontend = explained.frontends.find(({ kind }) => kind === KIND[target.kind]);
          assert.ok(frontend, target.kind);
          for (const position of ["pod", "node", "client"] as const satisfies DemoPosition[]) {
            const expectation = expectationOf(
              view,
              target,
              position,
              networkFacts(demoNode, view.sockets).IPv4,
              mode.traits,
            );
            const encounter = frontend.clients.find((client) => client.position === POSITION[position]);
            assert.ok(encounter);
            const policyName = encounter.endpoints === "local" ? "local" : "cluster";
            const members = explained.endpoints.filter((endpoint) => endpoint[policyName]?.used === true);
            const said = explainedFate(
              frontend,
              encounter,
              members.map(({ address }) => address.replace(/:\d+$/, "")).sort(),
              one.ranges.includes("10.200.0.64/26"),
            );
            const addresses = new Map(view.sockets.map(({ pod, address }) => [pod, address]));
            const expected =
              expectation.kind === "answer"
                ? `answered by ${[...expectation.peers.keys()]
                    .map((pod) => addresses.get(pod))
                    .sort()
                    .join(" ")}, ${expectation.source}`
                : expectation.kind;
            // Where ranges bar a client of a service without endpoints, modes differ, and the demo does not ask.
            if (mode.traits.checksSourcesFirst && isBarredWithoutEndpoints(explained, target.kind)) continue;
            assert.equal(said, expected, `${target.kind} ${position}`);
          }
        }
      }),
      { numRuns: 150 },
    );
  });
}
