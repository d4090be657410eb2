import assert from "node:assert/strict";
import { test } from "node:test";
import { readTable } from "../../../kernel/iptables/parser/ruleset.ts";
import { servicePortName } from "../../../model/service-port-name.ts";
import { CHAINS, servicePortChains } from "./chain-names.ts";
import { countByChain, declaredChains, type OwnerRules } from "./owner-rules.ts";
import type { StaticPlan } from "./rules-plan.ts";
import { SavedRules } from "./saved-rules.ts";

const web = servicePortName("ns", "web", "http", "TCP");
const webUdp = servicePortName("ns", "web", "http", "UDP");
const bare = servicePortName("ns", "web", "", "TCP");
const { cluster } = servicePortChains(web);

const PLAN: StaticPlan = {
  ...{ filterChains: [CHAINS.services, CHAINS.nodePorts], natChains: [CHAINS.services, CHAINS.nodePorts] },
  ...{ filterHead: [], filterTail: [], natHead: [], natTail: [] },
};

const FILTER = readTable(
  `*filter
:INPUT ACCEPT [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m comment --comment "ns/web:http looks like one" -p tcp -j ACCEPT
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http health check node port" -m tcp --dport 31000 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.2/32 -p udp -m comment --comment "ns/web:http has no endpoints" -m udp --dport 80 -j REJECT
COMMIT
`,
  "filter",
);
const NAT = readTable(
  `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:${cluster} - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j ${cluster}
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 30080 -j ${cluster}
-A KUBE-SERVICES -p tcp -m comment --comment ns/web -m tcp --dport 81 -j ${cluster}
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A ${cluster} -m comment --comment "ns/web:http -> 10.0.0.1:80" -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -j DNAT --to-destination 10.0.0.1:80
COMMIT
`,
  "nat",
);

/** The entries of a table in the form of deletions. */
function entries(rules: OwnerRules | undefined, table: "filter" | "nat"): string[] {
  return Array.from((rules?.[table] ?? "").matchAll(/^-A (.*)\n/gm), ([, rule = ""]) => rule);
}

test("a port's entries are found by name and protocol, with its chains and those of its endpoints", () => {
  const rules = new SavedRules(FILTER, NAT, PLAN).of(web);
  assert.deepEqual(entries(rules, "filter"), [
    'KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http health check node port" -m tcp --dport 31000 -j ACCEPT',
  ]);
  assert.deepEqual(entries(rules, "nat"), [
    `KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j ${cluster}`,
    `KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 30080 -j ${cluster}`,
  ]);
  assert.deepEqual(countByChain(rules?.filter ?? ""), new Map([["KUBE-NODEPORTS", 1]]));
  assert.deepEqual(
    countByChain(rules?.nat ?? ""),
    new Map([
      ["KUBE-SERVICES", 1],
      ["KUBE-NODEPORTS", 1],
    ]),
  );
  assert.deepEqual(declaredChains(rules?.ownChains ?? ""), [cluster, "KUBE-SEP-AAAAAAAAAAAAAAAA"]);
  assert.deepEqual([rules?.ownRuleCount, rules?.ownUses], [2, undefined]);
});

test("ports that differ in name or protocol only are told apart; comments may stand without quotes", () => {
  const saved = new SavedRules(FILTER, NAT, PLAN);
  assert.match(entries(saved.of(webUdp), "filter").join(), /^KUBE-SERVICES -d 10\.96\.0\.2\/32/);
  assert.match(entries(saved.of(bare), "nat").join(), /^KUBE-SERVICES -p tcp -m comment --comment ns\/web /);
  assert.equal(saved.of(servicePortName("ns", "we", "", "TCP")), undefined);
});

test("each port of a name has one health-check entry, as many as there are", () => {
  const saved = new SavedRules(FILTER, new Map(), PLAN);
  assert.match(entries(saved.of(web), "filter").join(), /health check/);
  assert.doesNotMatch(entries(saved.of(webUdp), "filter").join(), /health check/);
  assert.equal(saved.of(web), saved.of(web));
});

test("the rest is what was not asked about, without rules that belong to no service", () => {
  const saved = new SavedRules(FILTER, NAT, PLAN);
  saved.of(web);
  const rest = saved.rest();
  assert.deepEqual([...rest.keys()].sort(), ["ns/web/TCP", "ns/web:http/UDP"]);
  assert.match(entries(rest.get("ns/web/TCP"), "nat").join(), /--dport 81/);
  saved.of(bare);
  saved.of(webUdp);
  assert.deepEqual(saved.rest(), new Map());
});
