/** The payload of reference ipvs.md §7, line by line. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr, IpFamily } from "../../net/ip.ts";
import { SET_IDS, type SetId, setName } from "./names.ts";
import { planRules, type RulesInput } from "./plan-rules.ts";
import type { PlanConfig } from "./plan-service-port.ts";
import { restoreText } from "./rules.ts";

const CONFIG: PlanConfig = {
  family: "IPv4",
  nodeName: "node-a",
  nodeIP: ip("192.168.0.2"),
  masqueradeMark: 0x4000,
  hashSeed: 1,
  masqueradeAll: false,
  detector: { kind: "cidr", cidr: "10.1.0.0/16" as Cidr },
  scheduler: "rr",
};

function text(config: Partial<PlanConfig>, input: Partial<RulesInput>): string {
  const nothing = { filled: new Set<SetId>(), unusable: new Set<SetId>(), deniedVips: [] };
  return restoreText(planRules({ ...CONFIG, ...config }, { ...nothing, ...input }));
}

const ALL: ReadonlySet<SetId> = new Set(SET_IDS);

const NAT_ALL = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN
-A KUBE-POSTROUTING -m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-SERVICES -m comment --comment "Kubernetes service lb portal" -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER
-A KUBE-LOAD-BALANCER -m comment --comment "Kubernetes service load balancer ip + port with externalTrafficPolicy=local" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN
-A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port with externalTrafficPolicy=local" -m set --match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN
-A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-NODE-PORT -p udp -m comment --comment "Kubernetes nodeport UDP port with externalTrafficPolicy=local" -m set --match-set KUBE-NODE-PORT-LOCAL-UDP dst -j RETURN
-A KUBE-NODE-PORT -p udp -m comment --comment "Kubernetes nodeport UDP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-UDP dst -j KUBE-MARK-MASQ
-A KUBE-NODE-PORT -p sctp -m comment --comment "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'" -m set --match-set KUBE-NODE-PORT-LOCAL-SCTP-HASH dst,dst -j RETURN
-A KUBE-NODE-PORT -p sctp -m comment --comment "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'" -m set --match-set KUBE-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst ! -s 10.1.0.0/16 -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT
-A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst -m addrtype --dst-type LOCAL -j ACCEPT
-A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port with externalTrafficPolicy=local" -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT
-A KUBE-SERVICES -m comment --comment "Kubernetes service external ip + port with externalTrafficPolicy=local" -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -m addrtype --dst-type LOCAL -j ACCEPT
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
-A KUBE-SERVICES -m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT
-A KUBE-POSTROUTING -m mark ! --mark 0x00004000/0x00004000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x00004000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x00004000
COMMIT
`;

const FILTER_ALL = `*filter
:KUBE-FORWARD - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-A KUBE-PROXY-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port for load balancer with sourceRange" -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL
-A KUBE-SOURCE-RANGES-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port + source cidr for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN
-A KUBE-SOURCE-RANGES-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port + source IP for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-IP dst,dst,src -j RETURN
-A KUBE-SOURCE-RANGES-FIREWALL -j DROP
-A KUBE-IPVS-OUT-FILTER -s 203.0.113.1 -m ipvs --vaddr 203.0.113.1 --vproto tcp --vport 80 -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x00004000/0x00004000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A KUBE-NODE-PORT -m comment --comment "Kubernetes health check node port" -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT
-A KUBE-IPVS-FILTER -m set --match-set KUBE-LOAD-BALANCER dst,dst -j RETURN
-A KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
-A KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP dst,dst -j RETURN
-A KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j RETURN
-A KUBE-IPVS-FILTER -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN
-A KUBE-IPVS-FILTER -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT
COMMIT
`;

test("with every set filled", () => {
  const deniedVips = [{ address: ip("203.0.113.1"), protocol: "tcp", port: 80 }] as const;
  assert.equal(text({}, { filled: ALL, deniedVips }), NAT_ALL + FILTER_ALL);
});

/** Rules that do not depend on the sets: upstream's table without its ◦ lines. */
const UNCONDITIONAL =
  /-s 127|dst-type LOCAL -j KUBE-NODE-PORT|KUBE-LOAD-BALANCER -j|-A KUBE-POSTROUTING -(?:m mark|j MARK)|SNAT|-A KUBE-MARK|FIREWALL -j DROP|KUBE-FORWARD|health check|KUBE-IPVS-FILTER/;

test("with every set empty only what needs no entry is there", () => {
  const lines = (NAT_ALL + FILTER_ALL).split("\n");
  const expected = lines.filter((line) => !line.startsWith("-A") || UNCONDITIONAL.test(line));
  assert.equal(text({}, {}), expected.join("\n"));
});

test("each set brings its own rules along, and no others", () => {
  const without = text({}, {}).split("\n");
  for (const id of SET_IDS) {
    const added = text({}, { filled: new Set([id]) })
      .split("\n")
      .filter((line) => !without.includes(line));
    const expected = NAT_ALL.concat(FILTER_ALL)
      .split("\n")
      .filter((line) => line.includes(`--match-set ${setName(id, "IPv4")} `) && !without.includes(line));
    assert.deepEqual(added, expected, id);
  }
});

for (const [what, config, match] of [
  ["everybody", { masqueradeAll: true }, "dst,dst"],
  ["all that is not in the pods' network", {}, "dst,dst ! -s 10.1.0.0/16"],
  ["what comes in elsewhere", { detector: { kind: "interface", name: "cni0" } }, "dst,dst ! -i cni0"],
  ["others' interfaces", { detector: { kind: "interface-prefix", prefix: "veth" } }, "dst,dst ! -i veth+"],
  ["what has a cluster IP for its address", { detector: { kind: "none" } }, "src,dst"],
] as const satisfies readonly (readonly [string, Partial<PlanConfig>, string])[]) {
  test(`who is masqueraded on the way to a cluster IP: ${what}`, () => {
    const lines = text(config, { filled: new Set<SetId>(["clusterIP"]) }).split("\n");
    const rule = `-m set --match-set KUBE-CLUSTER-IP ${match} -j KUBE-MARK-MASQ`;
    assert.equal(lines.filter((line) => line.endsWith(rule)).length, 1);
  });
}

test("IPv6: its own loopback and its own sets", () => {
  const found = text({ family: "IPv6", detector: { kind: "none" } }, { filled: ALL });
  assert.ok(found.includes("-A KUBE-SERVICES -s ::1/128 -j RETURN\n"));
  assert.ok(found.includes("--match-set KUBE-6-LOAD-BALANCER-SOURCE-CID dst,dst,src"));
  assert.ok(!/--match-set KUBE-[^6]/.test(found));
});

test("no rule names a set that cannot be had, nor rejects what such a set would have let through", () => {
  const found = text({}, { filled: ALL, unusable: new Set<SetId>(["clusterIP", "healthCheckNodePort"]) });
  assert.ok(!found.includes("KUBE-CLUSTER-IP"));
  assert.ok(!found.includes("KUBE-HEALTH-CHECK-NODE-PORT"));
  assert.ok(!found.includes("REJECT"));
  assert.ok(found.includes("KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP dst,dst -j RETURN"));
  const another = text({}, { filled: ALL, unusable: new Set<SetId>(["loadBalancerSourceCIDR"]) });
  assert.ok(another.includes("-A KUBE-SOURCE-RANGES-FIREWALL -j DROP"), "what is restricted stays so");
});

for (const family of ["IPv4", "IPv6"] satisfies IpFamily[]) {
  test(`${family}: the payload is accepted`, async () => {
    const address = ip(family === "IPv4" ? "203.0.113.1" : "2001:db8::1");
    const deniedVips = [{ address, protocol: "sctp", port: 80 }] as const;
    const iptables = new MemoryIptables(family, { hasSet: () => true });
    await iptables.restore([text({ family, detector: { kind: "none" } }, { filled: ALL, deniedVips })]);
    assert.equal(iptables.rules("nat", "KUBE-SERVICES").length, 11);
    assert.equal(iptables.rules("filter", "KUBE-IPVS-OUT-FILTER").length, 1);
  });
}
