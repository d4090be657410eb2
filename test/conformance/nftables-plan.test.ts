/** The nftables plan of every case, as libnftables JSON, equals what upstream left in the kernel. No kernel needed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftElement, NftFamily } from "../../src/kernel/nftables/ruleset.ts";
import { elementKey } from "../../src/kernel/nftables/ruleset.ts";
import { chainJson, counterJson, type Json, ruleJson, setJson } from "../../src/kernel/nftables/ruleset-json.ts";
import { nodePortIPs, withoutLoopback } from "../../src/model/node-port-addresses.ts";
import { planServicePort } from "../../src/modes/nftables/compatible/plan-service-port.ts";
import { planStatic } from "../../src/modes/nftables/compatible/plan-static.ts";
import { TABLE } from "../../src/modes/nftables/names.ts";
import { type Cidr, familyOf, type IpFamily } from "../../src/net/ip.ts";
import { canonicalNftables } from "./canonical-nftables.ts";
import { caseFile, caseModel, caseNames, caseRejectedAtLocalhost, caseRelease } from "./conformance-case.ts";
import { cidr, ip } from "./example-clusters.ts";

const NODE_ADDRESSES = ["127.0.0.1", "::1", "10.200.0.2", "10.180.0.1", "fd00:200::2", "fd00:10:180::1"].map(ip);
const SERVICE_CIDRS: readonly Cidr[] = ["10.96.0.0/12", "fd00:10:96::/108"].map(cidr);

function rulesetOf(name: string, family: IpFamily, nftFamily: NftFamily): Json[] {
  const model = caseModel(name, family, ["primary"]);
  const { config, state, addresses } = model;
  const planConfig = {
    family,
    nodeName: model.node.name,
    nodeIP: addresses.ips[family],
    masqueradeMark: 2 ** (config.masqueradeBit ?? 14),
    hashSeed: 1,
    masqueradeAll: config.masqueradeAll ?? false,
    detector: model.detector,
    release: caseRelease(name),
    rejectedAtLocalhost: caseRejectedAtLocalhost(name, model),
  };
  const facts = {
    zone: model.node.zone,
    nodePortIPs: withoutLoopback(
      nodePortIPs(
        model.nodePortAddresses,
        NODE_ADDRESSES.filter((address) => familyOf(address) === family),
      ),
    ),
    serviceCIDRs: SERVICE_CIDRS.filter((serviceCidr) => familyOf(serviceCidr) === family),
  };
  const plans = [...state.services.values()].map((port) =>
    planServicePort(port, state.endpoints.get(port.name.key) ?? [], planConfig, facts),
  );
  const fixed = planStatic(planConfig, facts, new Set());
  const elements = new Map<string, Map<string, NftElement>>();
  const put = (set: string, element: NftElement) => {
    const known = elements.get(set) ?? new Map<string, NftElement>();
    elements.set(set, known.set(elementKey(element.key), element));
  };
  for (const plan of plans) for (const { set, element } of plan.elements) put(set, element);
  if (facts.nodePortIPs.kind === "ips")
    for (const address of facts.nodePortIPs.ips) put("nodeport-ips", { key: [address] });
  const table = { family: nftFamily, table: TABLE };
  const sets = [...fixed.sets, ...plans.flatMap((plan) => plan.affinitySets)];
  const chains = [...fixed.chains, ...plans.flatMap((plan) => plan.chains)];
  return [
    { table: { family: nftFamily, name: TABLE } },
    ...fixed.counters.map((counter) => counterJson(table, counter)),
    ...sets.map((set) => setJson(table, set, [...(elements.get(set.name)?.values() ?? [])])),
    ...chains.map((chain) => chainJson(table, chain)),
    ...chains.flatMap((chain) => chain.rules.map((rule) => ruleJson(table, chain.name, rule))),
  ];
}

for (const name of caseNames()) {
  test(`nftables plan: ${name}`, () => {
    const captured = JSON.parse(caseFile(name, "nftables/nft.json")).nftables;
    const objects = [...rulesetOf(name, "IPv4", "ip"), ...rulesetOf(name, "IPv6", "ip6")];
    assert.equal(canonicalNftables(objects), canonicalNftables(captured));
  });
}
