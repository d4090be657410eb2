/** Rules and sets that every layout has: reference nftables.md §3. */
import type { NftKeyType, NftRule, NftSet, NftStatement } from "../../kernel/nftables/ruleset.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, cidrContains, hostCidr, LOOPBACK } from "../../net/ip.ts";
import { rule } from "./base-chains.ts";
import { SETS } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";

/** `address . protocol . port` */
export const FRONT_END: readonly NftKeyType[] = ["address", "protocol", "port"];
/** `protocol . port` */
export const NODE_PORT: readonly NftKeyType[] = ["protocol", "port"];

export function set(name: string, key: readonly NftKeyType[], comment: string): NftSet {
  return { name, key, isMap: false, comment };
}

export function map(name: string, key: readonly NftKeyType[], comment: string): NftSet {
  return { name, key, isMap: true, comment };
}

export const HAIRPIN_CONNECTIONS = set(
  SETS.hairpinConnections,
  ["address", "address", "protocol", "port"],
  "service hairpin connections",
);
export const CLUSTER_IPS = set(SETS.clusterIPs, ["address"], "Active ClusterIPs");
/** Exists only while node ports answer at some of the node's addresses, not all. */
export const NODE_PORT_IPS = set(SETS.nodePortIPs, ["address"], "IPs that accept NodePort traffic");

const toAddressIn = (name: string): NftStatement => ({ kind: "lookup", fields: ["daddr"], set: name });

/** The match for addresses at which node ports answer. @param isBeforeRouting whether packets are not routed yet. */
export function toNodePort(config: PlanConfig, facts: PlanFacts, isBeforeRouting: boolean): NftStatement[] {
  if (facts.nodePortIPs.kind !== "all") return [toAddressIn(SETS.nodePortIPs)];
  const cidrs = [LOOPBACK[config.family]];
  const notLocalhost: NftStatement = { kind: "address", side: "daddr", negate: true, cidrs };
  return isBeforeRouting ? [{ kind: "fib-local", side: "daddr" }, notLocalhost] : [notLocalhost];
}

/** The match for traffic of local pods, or with `negate` for all other traffic; undefined without a detector. */
function detectorStatement(detector: LocalTrafficDetector, negate: boolean): NftStatement | undefined {
  switch (detector.kind) {
    case "none":
      return undefined;
    case "cidr":
      return { kind: "address", side: "saddr", negate, cidrs: [detector.cidr] };
    case "interface":
      return { kind: "in-interface", name: detector.name, isPrefix: false, negate };
    case "interface-prefix":
      return { kind: "in-interface", name: detector.prefix, isPrefix: true, negate };
  }
}

function mark({ masqueradeMark }: PlanConfig): NftStatement {
  return { kind: "mark-set", operation: "or", value: masqueradeMark };
}

/** Marks these packets: their replies must return through this node. */
export function masquerade(config: PlanConfig, ...matches: readonly NftStatement[]): NftRule {
  return { statements: [...matches, mark(config)], comment: "masquerade" };
}

/** External traffic under the Local policy: this node and its pods can reach any endpoint (nftables.md §3.4). */
export function localPolicyRules(config: PlanConfig, toCluster: NftStatement): NftRule[] {
  const fromPod = detectorStatement(config.detector, false);
  const fromNode: NftStatement = { kind: "fib-local", side: "saddr" };
  return [
    ...(fromPod === undefined ? [] : [{ statements: [fromPod, toCluster], comment: "short-circuit pod traffic" }]),
    { statements: [fromNode, mark(config)], comment: "masquerade local traffic" },
    { statements: [fromNode, toCluster], comment: "short-circuit local traffic" },
  ];
}

/** Marks packets to cluster IPs whose replies must return through this node. */
export function masqueradeClusterIPs(config: PlanConfig): NftRule[] {
  const toClusterIP = toAddressIn(SETS.clusterIPs);
  if (config.masqueradeAll) {
    return [{ statements: [toClusterIP, mark(config)], comment: "masquerade all clusterIP traffic" }];
  }
  const notLocal = detectorStatement(config.detector, true);
  if (notLocal === undefined) return [];
  return [
    { statements: [toClusterIP, notLocal, mark(config)], comment: "masquerade clusterIP traffic from outside cluster" },
  ];
}

/** Postrouting rules. They clear the mark first, so that a packet that passes again is not masqueraded twice. */
export function masqueradeRules(config: PlanConfig): NftRule[] {
  const masquerade: NftStatement = { kind: "masquerade" };
  return [
    rule(
      { kind: "mark-test", mask: config.masqueradeMark },
      { kind: "mark-set", operation: "xor", value: config.masqueradeMark },
      masquerade,
    ),
    rule(
      { kind: "ct-dnat" },
      { kind: "lookup", fields: ["saddr", "daddr", "l4proto", "dport"], set: SETS.hairpinConnections },
      masquerade,
    ),
  ];
}

/** Rules for packets to cluster IPs that were not translated. */
export function clusterIPRules(facts: PlanFacts): NftRule[] {
  const rules: NftRule[] = [
    {
      statements: [toAddressIn(SETS.clusterIPs), { kind: "reject" }],
      comment: "Reject traffic to invalid ports of ClusterIPs",
    },
  ];
  if (facts.serviceCIDRs.length > 0) {
    rules.push({
      statements: [
        { kind: "address", side: "daddr", cidrs: facts.serviceCIDRs },
        { kind: "verdict", verdict: { kind: "drop" } },
      ],
      comment: "Drop traffic to unallocated ClusterIPs",
    });
  }
  return rules;
}

/** The source ranges of a service port that has some, and the sources that they imply: reference nftables.md §3.4. */
export function allowedSources(port: ServicePort, config: PlanConfig): readonly Cidr[] {
  const { loadBalancerSourceRanges: ranges, loadBalancerVIPs } = port;
  // If the node is allowed, hairpin connections through the load balancer arrive with the VIP as their source.
  const admitsNode = ranges.some((range) => cidrContains(range, config.nodeIP));
  return admitsNode ? [...ranges, ...loadBalancerVIPs.map(hostCidr)] : ranges;
}
