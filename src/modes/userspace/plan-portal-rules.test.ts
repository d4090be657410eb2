/** The portal rules, compared with the tables of reference userspace.md §1.2 and §1.3. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ruleSpec } from "../../kernel/iptables/rule-text.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { ip, makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { hostAddressAmong, listenAddressOf } from "./listen-address.ts";
import { PORTAL_JUMPS, type PortalPlanConfig, planPortalRules } from "./plan-portal-rules.ts";
import { portalsOf } from "./portals.ts";

const config: PortalPlanConfig = {
  listenAddress: ip("0.0.0.0"),
  hostAddress: ip("192.168.1.5"),
  knowsBridgePorts: true,
  detector: { kind: "cidr", cidr: "10.1.0.0/16" as Cidr },
};
const PROXY_PORTS = { cluster: 40001, local: 40002 };
const HERE = makeEndpoint("10.1.0.1", 80, { isLocal: true });
const ELSEWHERE = makeEndpoint("10.1.1.1", 80);

/** `table chain …rest` without the words that all rules of the port share. */
function rulesOf(
  port: ServicePort,
  options: Partial<PortalPlanConfig> = {},
  nodes: NodePortIPs = { kind: "all" },
  endpoints: readonly Endpoint[] = [HERE],
) {
  const routing = routeServicePort(port, endpoints, { nodeName: "node-a", zone: undefined });
  const { shared } = planPortalRules(port, portalsOf(port, routing, nodes), PROXY_PORTS, { ...config, ...options });
  const common = `-m comment --comment ${port.name.text} -m ${port.protocol.toLowerCase()} -p ${port.protocol.toLowerCase()} `;
  return shared.map(({ table, rule }) => `${table} ${ruleSpec(rule).replace(common, "")}`);
}

test("the jumps stand where upstream puts them: portals first, node ports last", () => {
  const comment = (text: string) => `-m comment --comment "${text}"`;
  const portals = comment("handle ClusterIPs; NOTE: this must be before the NodePort rules");
  const nodePorts = `-m addrtype --dst-type LOCAL ${comment("handle service NodePorts; NOTE: this must be the last rule in the chain")}`;
  const nonLocal = comment("Ensure that non-local NodePort traffic can flow");
  assert.deepEqual(
    PORTAL_JUMPS.map(({ table, rule, position }) => `${position} ${table} ${ruleSpec(rule)}`),
    [
      `head nat PREROUTING ${portals} -j KUBE-PORTALS-CONTAINER`,
      `head nat OUTPUT ${portals} -j KUBE-PORTALS-HOST`,
      `end nat PREROUTING ${nodePorts} -j KUBE-NODEPORT-CONTAINER`,
      `end nat OUTPUT ${nodePorts} -j KUBE-NODEPORT-HOST`,
      `head filter INPUT ${nonLocal} -j KUBE-NODEPORT-NON-LOCAL`,
      ...["INPUT", "FORWARD", "OUTPUT"].map(
        (chain) =>
          `head filter ${chain} -m conntrack --ctstate NEW ${comment("refuse what no endpoint serves")} -j KUBE-PORTALS-UNSERVED`,
      ),
    ],
  );
});

test("each kind of address has its rules: REDIRECT from elsewhere, DNAT to the node for the node's own packets", () => {
  const port = makeServicePort({
    nodePort: 30080,
    externalIPs: [ip("203.0.113.5")],
    loadBalancerVIPs: [ip("198.51.100.5")],
  });
  assert.deepEqual(rulesOf(port), [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 172.16.0.1/32 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 172.16.0.1/32 -j DNAT --to-destination 192.168.1.5:40001",
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 203.0.113.5/32 -m physdev ! --physdev-is-in -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 203.0.113.5/32 -m addrtype --dst-type LOCAL -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 203.0.113.5/32 -m addrtype --dst-type LOCAL -j DNAT --to-destination 192.168.1.5:40001",
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 198.51.100.5/32 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 198.51.100.5/32 -j DNAT --to-destination 192.168.1.5:40001",
    "nat KUBE-NODEPORT-CONTAINER --dport 30080 -j REDIRECT --to-ports 40001",
    "nat KUBE-NODEPORT-HOST --dport 30080 -j DNAT --to-destination 192.168.1.5:40001",
    "filter KUBE-NODEPORT-NON-LOCAL --dport 40001 -m state --state NEW -j ACCEPT",
  ]);
});

test("a proxy that listens on one address gets everything by DNAT to it", () => {
  const port = makeServicePort({ nodePort: 30080, protocol: "UDP" });
  assert.deepEqual(rulesOf(port, { listenAddress: ip("192.168.1.9") }), [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 172.16.0.1/32 -j DNAT --to-destination 192.168.1.9:40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 172.16.0.1/32 -j DNAT --to-destination 192.168.1.9:40001",
    "nat KUBE-NODEPORT-CONTAINER --dport 30080 -j DNAT --to-destination 192.168.1.9:40001",
    "nat KUBE-NODEPORT-HOST --dport 30080 -j DNAT --to-destination 192.168.1.9:40001",
    "filter KUBE-NODEPORT-NON-LOCAL --dport 40001 -m state --state NEW -j ACCEPT",
  ]);
});

test("IPv6 has the same rules in its own spelling", () => {
  const port = makeServicePort({ clusterIP: ip("fd00:10:96::1") });
  const options = { listenAddress: ip("::"), hostAddress: ip("fd00::5") };
  assert.deepEqual(rulesOf(port, options), [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d fd00:10:96::1/128 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d fd00:10:96::1/128 -j DNAT --to-destination [fd00::5]:40001",
  ]);
});

test("where bridge ports are unknown to the kernel no rule asks for them (userspace.md §1.3)", () => {
  const port = makeServicePort({ externalIPs: [ip("203.0.113.5")] });
  const rules = rulesOf(port, { knowsBridgePorts: false });
  assert.equal(rules[2], "nat KUBE-PORTALS-CONTAINER --dport 80 -d 203.0.113.5/32 -j REDIRECT --to-ports 40001");
});

test("source ranges and listed node-port addresses narrow the rules; the node is let in by any address of its own", () => {
  const ranged = makeServicePort({
    loadBalancerVIPs: [ip("198.51.100.5")],
    loadBalancerSourceRanges: ["10.0.0.0/8" as Cidr, "192.0.2.0/24" as Cidr],
  });
  assert.deepEqual(rulesOf(ranged).slice(2), [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 198.51.100.5/32 -s 10.0.0.0/8 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 198.51.100.5/32 -s 10.0.0.0/8 -j DNAT --to-destination 192.168.1.5:40001",
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 198.51.100.5/32 -s 192.0.2.0/24 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 198.51.100.5/32 -s 192.0.2.0/24 -j DNAT --to-destination 192.168.1.5:40001",
  ]);
  const withNode = { ...ranged, loadBalancerSourceRanges: ["192.168.1.0/24" as Cidr] };
  assert.deepEqual(
    rulesOf(withNode).flatMap((rule) => / -s (\S+)/.exec(rule)?.[1] ?? []),
    ["192.168.1.0/24", "192.168.1.0/24", "198.51.100.5/32", "198.51.100.5/32"],
  );
  const listed = rulesOf(makeServicePort({ nodePort: 30080 }), {}, { kind: "ips", ips: [ip("192.168.1.5")] });
  assert.deepEqual(listed.slice(2), [
    "nat KUBE-NODEPORT-CONTAINER --dport 30080 -d 192.168.1.5/32 -j REDIRECT --to-ports 40001",
    "nat KUBE-NODEPORT-HOST --dport 30080 -d 192.168.1.5/32 -j DNAT --to-destination 192.168.1.5:40001",
    "filter KUBE-NODEPORT-NON-LOCAL --dport 40001 -m state --state NEW -j ACCEPT",
  ]);
});

const everything = (overrides: Partial<ServicePort>) =>
  makeServicePort({
    nodePort: 30080,
    loadBalancerVIPs: [ip("198.51.100.5")],
    isExternallyAccessible: true,
    ...overrides,
  });

test("a service without endpoints leads nowhere and is refused at every address", () => {
  assert.deepEqual(rulesOf(everything({}), {}, { kind: "all" }, []), [
    "filter KUBE-PORTALS-UNSERVED --dport 80 -d 172.16.0.1/32 -j REJECT",
    "filter KUBE-PORTALS-UNSERVED --dport 80 -d 198.51.100.5/32 -j REJECT",
    "filter KUBE-PORTALS-UNSERVED --dport 30080 -m addrtype --dst-type LOCAL -j REJECT",
  ]);
});

test("an internal Local policy leads everyone to the local lane, and drops where that has no endpoint", () => {
  const port = makeServicePort({ internalPolicyLocal: true });
  assert.deepEqual(rulesOf(port), [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 172.16.0.1/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-HOST --dport 80 -d 172.16.0.1/32 -j DNAT --to-destination 192.168.1.5:40002",
  ]);
  assert.deepEqual(rulesOf(port, {}, { kind: "all" }, [ELSEWHERE]), [
    "filter KUBE-PORTALS-UNSERVED --dport 80 -d 172.16.0.1/32 -j DROP",
  ]);
});

test("an external Local policy binds clients outside; the node and its pods reach all endpoints", () => {
  const port = everything({ externalPolicyLocal: true });
  const inside = [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 198.51.100.5/32 -s 10.1.0.0/16 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST --dport 80 -d 198.51.100.5/32 -j DNAT --to-destination 192.168.1.5:40001",
    "nat KUBE-NODEPORT-CONTAINER --dport 30080 -s 10.1.0.0/16 -j REDIRECT --to-ports 40001",
    "nat KUBE-NODEPORT-HOST --dport 30080 -j DNAT --to-destination 192.168.1.5:40001",
    "filter KUBE-NODEPORT-NON-LOCAL --dport 40001 -m state --state NEW -j ACCEPT",
  ];
  const outside = [
    "nat KUBE-PORTALS-CONTAINER --dport 80 -d 198.51.100.5/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-NODEPORT-CONTAINER --dport 30080 -j REDIRECT --to-ports 40002",
    "filter KUBE-NODEPORT-NON-LOCAL --dport 40002 -m state --state NEW -j ACCEPT",
  ];
  const withLocal = rulesOf(port).slice(2);
  assert.deepEqual(withLocal.toSorted(), [...inside, ...outside].toSorted());
  const container = withLocal.filter((rule) => rule.includes("NODEPORT-CONTAINER"));
  assert.match(container[0] ?? "", /-s 10\.1\.0\.0\/16/, "pods come first");
  assert.deepEqual(
    rulesOf(port, {}, { kind: "all" }, [ELSEWHERE]).slice(2).toSorted(),
    [
      ...inside,
      "filter KUBE-PORTALS-UNSERVED --dport 80 -d 198.51.100.5/32 -j DROP",
      "filter KUBE-PORTALS-UNSERVED --dport 30080 -m addrtype --dst-type LOCAL -j DROP",
    ].toSorted(),
  );
});

test("pods inside a source range are in the smaller of both: a rule of iptables takes one source", () => {
  const sources = (range: string) =>
    rulesOf(
      makeServicePort({
        externalPolicyLocal: true,
        loadBalancerVIPs: [ip("198.51.100.5")],
        loadBalancerSourceRanges: [range as Cidr],
        isExternallyAccessible: true,
      }),
    )
      .filter((rule) => rule.includes("PORTALS-CONTAINER") && rule.includes("198.51.100.5"))
      .map((rule) => `${/ -s (.+) -j/.exec(rule)?.[1]} ${rule.slice(-5)}`);
  assert.deepEqual(sources("10.0.0.0/8"), ["10.1.0.0/16 40001", "10.0.0.0/8 40002"]);
  assert.deepEqual(sources("10.1.7.0/24"), ["10.1.7.0/24 40001", "10.1.7.0/24 40002"]);
  assert.deepEqual(sources("192.0.2.0/24"), ["192.0.2.0/24 40002"]);
});

test("the sockets have one address of the host, and keep it while it is there", () => {
  const among = (addresses: readonly string[], before?: string) =>
    hostAddressAmong(new Set(addresses.map(ip)), ip("192.168.1.5"), before === undefined ? undefined : ip(before));
  const all = ["127.0.0.1", "10.1.0.1", "192.168.1.5"];
  assert.equal(among(all), "192.168.1.5");
  assert.equal(among(all, "10.1.0.1"), "10.1.0.1");
  assert.equal(among(["127.0.0.1", "10.1.0.1"], "192.168.1.5"), "10.1.0.1");
  assert.equal(among(["127.0.0.1", "fe80::1"]), undefined);
  assert.equal(listenAddressOf("0.0.0.0", "IPv4", ip("192.168.1.5")), "192.168.1.5");
  assert.equal(listenAddressOf("192.168.1.9", "IPv4", ip("192.168.1.5")), "192.168.1.9");
  assert.equal(listenAddressOf("::", "IPv4", undefined), "0.0.0.0");
  assert.throws(() => listenAddressOf("127.0.0.1", "IPv4", undefined), /cannot proxy on localhost/);
});
