/** The tables of reference ipvs.md §3, §4 and §6, row by row. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote, sortedEndpoints } from "../../../testkit/dataplane/test-cluster.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { ipsetEntryText } from "./ipset/ipset.ts";
import { virtualServerText } from "./kernel/ipvs.ts";
import { setDefinition } from "./names.ts";
import { type PlanConfig, type PlanFacts, planServicePort, type ServicePortPlan } from "./plan-service-port.ts";
import { realServersOf } from "./virtual-server-step.ts";

const CONFIG: PlanConfig = {
  family: "IPv4",
  nodeName: "node-a",
  nodeIP: ip("192.168.0.2"),
  masqueradeMark: 0x4000,
  hashSeed: 1,
  masqueradeAll: false,
  detector: { kind: "none" },
  scheduler: "rr",
};
const FACTS: PlanFacts = {
  zone: undefined,
  nodeAddresses: new Set([ip("192.168.0.2"), ip("10.1.0.1")]),
  nodePortIPs: [ip("10.1.0.1"), ip("192.168.0.2")],
};
const HERE = local("10.1.0.5");
const THERE = remote("10.1.1.5");

function plan(
  servicePort: ServicePort,
  endpoints: readonly Endpoint[] = [HERE, THERE],
  { config = {}, facts = {} }: { config?: Partial<PlanConfig>; facts?: Partial<PlanFacts> } = {},
): ServicePortPlan {
  return planServicePort(servicePort, sortedEndpoints(endpoints), { ...CONFIG, ...config }, { ...FACTS, ...facts });
}

/** `10.96.0.1:80/TCP` → the endpoints' texts. */
function servers({ virtualServers }: ServicePortPlan): Record<string, string> {
  return Object.fromEntries(
    virtualServers.map(({ virtualServer, endpoints }) => [
      virtualServerText(virtualServer),
      endpoints.map(({ text }) => text).join(" "),
    ]),
  );
}

/** Set → entries; `kube-ipvs0` stands for the addresses. */
function entries({ entries: all, addresses }: ServicePortPlan): Record<string, readonly string[]> {
  const bySet: Record<string, string[]> = {};
  for (const { set, entry } of all) {
    const name = setDefinition(set, "IPv4").name;
    bySet[name] = [...(bySet[name] ?? []), ipsetEntryText(entry)];
  }
  assert.deepEqual(bySet["KUBE-IPVS-IPS"], addresses, "KUBE-IPVS-IPS has what is bound");
  delete bySet["KUBE-IPVS-IPS"];
  return { ...bySet, "kube-ipvs0": addresses };
}

const BOTH = "10.1.0.5:8080 10.1.1.5:8080";
const EXTERNAL = { externalIPs: [ip("198.51.100.1")] };
const BALANCED = { loadBalancerVIPs: [ip("203.0.113.1")] };

test("cluster IP", () => {
  const made = plan(port("a", "10.96.0.1"));
  assert.deepEqual(servers(made), { "10.96.0.1:80/TCP": BOTH });
  assert.deepEqual(entries(made), {
    "KUBE-LOOP-BACK": ["10.1.0.5,tcp:8080,10.1.0.5"],
    "KUBE-CLUSTER-IP": ["10.96.0.1,tcp:80"],
    "kube-ipvs0": ["10.96.0.1"],
  });
});

test("external IP, policy Cluster and Local", () => {
  const cluster = plan(port("a", "10.96.0.1", EXTERNAL));
  assert.deepEqual(servers(cluster), { "10.96.0.1:80/TCP": BOTH, "198.51.100.1:80/TCP": BOTH });
  assert.deepEqual(entries(cluster), {
    "KUBE-LOOP-BACK": ["10.1.0.5,tcp:8080,10.1.0.5"],
    "KUBE-CLUSTER-IP": ["10.96.0.1,tcp:80"],
    "KUBE-EXTERNAL-IP": ["198.51.100.1,tcp:80"],
    "kube-ipvs0": ["10.96.0.1", "198.51.100.1"],
  });
  const onlyLocal = plan(port("a", "10.96.0.1", { ...EXTERNAL, externalPolicyLocal: true }));
  assert.deepEqual(servers(onlyLocal), { "10.96.0.1:80/TCP": BOTH, "198.51.100.1:80/TCP": "10.1.0.5:8080" });
  assert.deepEqual(entries(onlyLocal)["KUBE-EXTERNAL-IP-LOCAL"], ["198.51.100.1,tcp:80"]);
  assert.equal(entries(onlyLocal)["KUBE-EXTERNAL-IP"], undefined);
});

test("an external address that another device has is served, and not bound", () => {
  const made = plan(port("a", "10.96.0.1", { externalIPs: [ip("192.168.0.2")], loadBalancerVIPs: [ip("10.1.0.1")] }));
  assert.deepEqual(Object.keys(servers(made)), ["10.96.0.1:80/TCP", "192.168.0.2:80/TCP", "10.1.0.1:80/TCP"]);
  assert.deepEqual(entries(made)["kube-ipvs0"], ["10.96.0.1"]);
  assert.deepEqual(entries(made)["KUBE-EXTERNAL-IP"], ["192.168.0.2,tcp:80"]);
});

test("a cluster IP is bound though other devices may have it", () => {
  assert.deepEqual(entries(plan(port("a", "192.168.0.2")))["kube-ipvs0"], ["192.168.0.2"]);
});

test("load balancer, policy Cluster and Local", () => {
  const cluster = plan(port("a", "10.96.0.1", BALANCED));
  assert.deepEqual(servers(cluster), { "10.96.0.1:80/TCP": BOTH, "203.0.113.1:80/TCP": BOTH });
  assert.deepEqual(entries(cluster), {
    "KUBE-LOOP-BACK": ["10.1.0.5,tcp:8080,10.1.0.5"],
    "KUBE-CLUSTER-IP": ["10.96.0.1,tcp:80"],
    "KUBE-LOAD-BALANCER": ["203.0.113.1,tcp:80"],
    "kube-ipvs0": ["10.96.0.1", "203.0.113.1"],
  });
  const onlyLocal = plan(port("a", "10.96.0.1", { ...BALANCED, externalPolicyLocal: true }));
  assert.deepEqual(entries(onlyLocal)["KUBE-LOAD-BALANCER"], ["203.0.113.1,tcp:80"]);
  assert.deepEqual(entries(onlyLocal)["KUBE-LOAD-BALANCER-LOCAL"], ["203.0.113.1,tcp:80"]);
  assert.equal(servers(onlyLocal)["203.0.113.1:80/TCP"], "10.1.0.5:8080");
});

test("source ranges that have the node let it reach itself by the address", () => {
  const ranges = ["192.168.0.0/24", "198.18.0.1/32"] as Cidr[]; // canonical
  const made = plan(port("a", "10.96.0.1", { ...BALANCED, loadBalancerSourceRanges: ranges }));
  const found = entries(made);
  assert.deepEqual(found["KUBE-LOAD-BALANCER-FW"], ["203.0.113.1,tcp:80"]);
  const cidrs = ["203.0.113.1,tcp:80,192.168.0.0/24", "203.0.113.1,tcp:80,198.18.0.1"];
  assert.deepEqual(found["KUBE-LOAD-BALANCER-SOURCE-CIDR"], cidrs);
  assert.deepEqual(found["KUBE-LOAD-BALANCER-SOURCE-IP"], ["203.0.113.1,tcp:80,203.0.113.1"]);
  assert.deepEqual(made.deniedVips, []);
});

test("source ranges without the node keep it off", () => {
  const ranges = ["198.18.0.0/15"] as Cidr[];
  const made = plan(port("a", "10.96.0.1", { ...BALANCED, loadBalancerSourceRanges: ranges }));
  assert.equal(entries(made)["KUBE-LOAD-BALANCER-SOURCE-IP"], undefined);
  assert.deepEqual(made.deniedVips, [{ address: "203.0.113.1", protocol: "tcp", port: 80 }]);
});

test("source ranges are for load balancers alone", () => {
  const made = plan(port("a", "10.96.0.1", { ...EXTERNAL, loadBalancerSourceRanges: ["198.18.0.0/15"] as Cidr[] }));
  assert.equal(entries(made)["KUBE-LOAD-BALANCER-FW"], undefined);
  assert.deepEqual(made.deniedVips, []);
});

for (const [protocol, set, entry] of [
  ["TCP", "KUBE-NODE-PORT-TCP", ["30080"]],
  ["UDP", "KUBE-NODE-PORT-UDP", ["30080"]],
  ["SCTP", "KUBE-NODE-PORT-SCTP-HASH", ["10.1.0.1,sctp:30080", "192.168.0.2,sctp:30080"]],
] as const) {
  test(`${protocol} node port, policy Cluster and Local`, () => {
    const cluster = plan(port("a", "10.96.0.1", { protocol, nodePort: 30080 }));
    assert.deepEqual(servers(cluster), {
      [`10.96.0.1:80/${protocol}`]: BOTH,
      [`10.1.0.1:30080/${protocol}`]: BOTH,
      [`192.168.0.2:30080/${protocol}`]: BOTH,
    });
    const localSet = set.replace(protocol, `LOCAL-${protocol}`);
    assert.deepEqual(entries(cluster)[set], entry);
    assert.equal(entries(cluster)[localSet], undefined);
    assert.deepEqual(entries(cluster)["kube-ipvs0"], ["10.96.0.1"]);

    const onlyLocal = plan(port("a", "10.96.0.1", { protocol, nodePort: 30080, externalPolicyLocal: true }));
    assert.deepEqual(entries(onlyLocal)[set], entry);
    assert.deepEqual(entries(onlyLocal)[localSet], entry);
    assert.equal(servers(onlyLocal)[`10.1.0.1:30080/${protocol}`], "10.1.0.5:8080");
  });
}

test("without addresses for node ports the rest is served, the health-check port included", () => {
  const servicePort = port("a", "10.96.0.1", { nodePort: 30080, healthCheckNodePort: 32000 });
  const made = plan(servicePort, [THERE], { facts: { nodePortIPs: [] } });
  assert.deepEqual(servers(made), { "10.96.0.1:80/TCP": "10.1.1.5:8080" });
  assert.deepEqual(entries(made), {
    "KUBE-CLUSTER-IP": ["10.96.0.1,tcp:80"],
    "KUBE-HEALTH-CHECK-NODE-PORT": ["32000"],
    "kube-ipvs0": ["10.96.0.1"],
  });
});

test("any local endpoint may reach itself, ready or not", () => {
  const gone = local("10.1.0.6", { isReady: false, isServing: false, isTerminating: true });
  const made = plan(port("a", "10.96.0.1", { protocol: "SCTP" }), [gone, THERE]);
  assert.deepEqual(entries(made)["KUBE-LOOP-BACK"], ["10.1.0.6,sctp:8080,10.1.0.6"]);
  assert.deepEqual(servers(made), { "10.96.0.1:80/SCTP": "10.1.1.5:8080" });
});

test("affinity makes virtual servers persistent", () => {
  const servicePort = port("a", "10.96.0.1", { ...EXTERNAL, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 600 });
  for (const { virtualServer } of plan(servicePort).virtualServers) {
    assert.deepEqual([virtualServer.flags, virtualServer.timeoutSeconds, virtualServer.scheduler], [0x1, 600, "rr"]);
  }
  const [without] = plan({ ...servicePort, sessionAffinity: "None" }).virtualServers;
  assert.deepEqual([without?.virtualServer.flags, without?.virtualServer.timeoutSeconds], [0, 0]);
});

test("the scheduler mh has its flags", () => {
  const [plain] = plan(port("a", "10.96.0.1"), [], { config: { scheduler: "mh" } }).virtualServers;
  assert.deepEqual([plain?.virtualServer.scheduler, plain?.virtualServer.flags], ["mh", 0x18]);
  const sticky = port("a", "10.96.0.1", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 5 });
  assert.equal(plan(sticky, [], { config: { scheduler: "mh" } }).virtualServers[0]?.virtualServer.flags, 0x19);
});

test("a Service that asks for a hash gets the scheduler mh beside any other", () => {
  for (const scheduler of ["rr", "lc", "mh"]) {
    const config = { config: { scheduler } };
    const of = (balancing: "SourceHash" | "FlowHash", affinity = {}) => {
      const [only] = plan(port("a", "10.96.0.1", { balancing, ...affinity }), [], config).virtualServers;
      return [only?.virtualServer.scheduler, only?.virtualServer.flags];
    };
    assert.deepEqual(of("SourceHash"), ["mh", 0x8]);
    assert.deepEqual(of("FlowHash"), ["mh", 0x18]);
    const sticky = { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 5 };
    assert.deepEqual(of("SourceHash", sticky), ["mh", 0x9]);
  }
});

test("a virtual server without endpoints stays, and refuses", () => {
  assert.deepEqual(servers(plan(port("a", "10.96.0.1"), [])), { "10.96.0.1:80/TCP": "" });
});

test("policy Local without local endpoints falls back to all", () => {
  const made = plan(port("a", "10.96.0.1", { ...EXTERNAL, externalPolicyLocal: true }), [THERE]);
  assert.equal(servers(made)["198.51.100.1:80/TCP"], "10.1.1.5:8080");

  const internal = plan(port("a", "10.96.0.1", { ...EXTERNAL, internalPolicyLocal: true }), [THERE]);
  assert.deepEqual(servers(internal), { "10.96.0.1:80/TCP": "10.1.1.5:8080", "198.51.100.1:80/TCP": "10.1.1.5:8080" });
});

test("a cluster-internal service with policy Local has nothing to fall back to", () => {
  const made = plan(port("a", "10.96.0.1", { internalPolicyLocal: true }), [THERE]);
  assert.deepEqual(servers(made), { "10.96.0.1:80/TCP": "" });
});

test("terminating endpoints serve when no other endpoint does", () => {
  const ending = remote("10.1.1.9", { isReady: false, isServing: true, isTerminating: true });
  assert.deepEqual(servers(plan(port("a", "10.96.0.1"), [THERE, ending])), { "10.96.0.1:80/TCP": "10.1.1.5:8080" });
  assert.deepEqual(servers(plan(port("a", "10.96.0.1"), [ending])), { "10.96.0.1:80/TCP": "10.1.1.9:8080" });
});

test("zone hints choose real servers", () => {
  const near = remote("10.1.1.5", { zoneHints: ["zone-1"] });
  const far = remote("10.1.1.6", { zoneHints: ["zone-2"] });
  const made = plan(port("a", "10.96.0.1"), [near, far], { facts: { zone: "zone-1" } });
  assert.deepEqual(servers(made), { "10.96.0.1:80/TCP": "10.1.1.5:8080" });
});

test("IPv6 reads the same", () => {
  const servicePort = port("a", "fd00:96::1", { nodePort: 30080, protocol: "UDP" });
  const endpoints = [local("fd00:1::5")];
  const facts = { nodeAddresses: new Set([ip("fd00::2")]), nodePortIPs: [ip("fd00::2")] };
  const made = plan(servicePort, endpoints, { config: { family: "IPv6" }, facts });
  assert.deepEqual(servers(made), {
    "[fd00:96::1]:80/UDP": "[fd00:1::5]:8080",
    "[fd00::2]:30080/UDP": "[fd00:1::5]:8080",
  });
  assert.deepEqual(entries(made)["KUBE-LOOP-BACK"], ["fd00:1::5,udp:8080,fd00:1::5"]);
});

test("weights are real servers' weights, with wrr in place of rr; a drained endpoint stays with weight 0", () => {
  const endpoints = [
    { ...HERE, weight: 1 },
    { ...THERE, weight: 9 },
    { ...remote("10.1.1.6"), weight: 0 },
  ];
  const of = (some: readonly Endpoint[], scheduler: string) => {
    const [first] = plan(port("web", "10.96.0.1"), some, { config: { scheduler } }).virtualServers;
    assert.ok(first !== undefined);
    return [first.virtualServer.scheduler, ...realServersOf(first).map(({ weight }) => weight)];
  };
  assert.deepEqual(of(endpoints, "rr"), ["wrr", 1, 9, 0]);
  assert.deepEqual(of(endpoints, "mh"), ["mh", 1, 9, 0]);
  assert.deepEqual(of([HERE, THERE, { ...remote("10.1.1.6"), weight: 0 }], "rr"), ["rr", 1, 1, 0]);
  assert.deepEqual(of([HERE, THERE], "rr"), ["rr", 1, 1]);
});
