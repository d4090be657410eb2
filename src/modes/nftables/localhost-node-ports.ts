/**
 * Node ports on loopback addresses, which the kernel cannot translate: those that no relay serves are rejected and
 * counted (KEP-6032, reference releases.md).
 */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { gatesOf, LOCALHOST_NODE_PORTS_GATE } from "../../contract/config/feature-gates.ts";
import type { SourceFacts } from "../../contract/mode-words.ts";
import type { NftChain, NftElement, NftRule, NftSet, NftStatement } from "../../kernel/nftables/ruleset.ts";
import { ownedFrontends } from "../../model/frontend.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { LOOPBACK } from "../../net/ip.ts";
import { PROTOCOLS, type Protocol, protocolName } from "../../net/protocol.ts";
import { rule } from "./base-chains.ts";
import { map, NODE_PORT, NODE_PORT_IPS } from "./common-rules.ts";
import { LOCALHOST } from "./localhost-relay.ts";
import { SETS } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import type { SharedElement, StaticPlan } from "./table-plan.ts";

/** How node ports on loopback addresses are treated. */
interface LocalhostService {
  /** Whether the relay serves them, for TCP. */
  readonly isRelayed: boolean;
  readonly rejected: readonly Protocol[];
}

/** Undefined if they are neither served nor rejected. Reference releases.md. */
export function localhostServiceOf(
  config: Pick<KubeProxyConfig, "featureGates" | "compatibility">,
  { namesLoopback }: NodePortAddresses,
): LocalhostService | undefined {
  if (!gatesOf(config).isEnabled(LOCALHOST_NODE_PORTS_GATE)) return undefined;
  return { isRelayed: namesLoopback, rejected: PROTOCOLS.filter((one) => one !== "TCP" || !namesLoopback) };
}

/** What `explain` says about node ports on loopback addresses. */
export function localhostWords({ config, node, port: { protocol } }: SourceFacts) {
  const service = localhostServiceOf(config, node.nodePortAddresses);
  const address = LOCALHOST[node.family];
  return {
    led: `kube-proxy itself listens at ${address}, and connects to an endpoint, which sees this node's address (KEP-6032)`,
    notLed:
      service === undefined
        ? `the kernel cannot translate loopback addresses. To serve it for TCP, set nodePortAddresses to [primary, localhost], and the feature gate ${LOCALHOST_NODE_PORTS_GATE}`
        : !service.isRelayed
          ? "nodePortAddresses names no loopback prefix: [primary, localhost] does"
          : !service.rejected.includes(protocol)
            ? `kube-proxy listens at ${address} alone`
            : `the relay carries TCP, not ${protocol}`,
  };
}

/** The chain that rejects node ports of a protocol on loopback addresses. */
export function localhostRejectChain(protocol: Protocol): string {
  return `localhost-nodeport-reject-${protocolName(protocol)}`;
}

/** Exists only while some protocol is rejected. */
export const LOCALHOST_REJECT_PORTS: NftSet = map(
  SETS.localhostRejectPorts,
  NODE_PORT,
  "localhost NodePorts rejected by kube-proxy",
);

/** The rules that reject. @param resets whether TCP clients get an immediate reset instead of an ICMP error. */
export function localhostRejection(
  { rejectedAtLocalhost: rejected = [], family }: PlanConfig,
  resets: boolean,
): { readonly check: readonly NftRule[]; readonly chains: readonly NftChain[] } & Pick<StaticPlan, "counters"> {
  if (rejected.length === 0) return { check: [], chains: [], counters: [] };
  return {
    check: [
      rule(
        { kind: "address", side: "daddr", cidrs: [LOOPBACK[family]] },
        { kind: "vmap", fields: ["l4proto", "dport"], map: SETS.localhostRejectPorts },
      ),
    ],
    chains: rejected.map((protocol) => {
      const count: NftStatement = { kind: "counter", name: counterOf(protocol) };
      const withReset: readonly NftStatement[] = [
        { kind: "l4proto", protocol: "tcp" },
        count,
        { kind: "reject", withReset: true },
      ];
      const statements = resets && protocol === "TCP" ? withReset : [count, { kind: "reject" } as const];
      return { name: localhostRejectChain(protocol), rules: [rule(...statements)] };
    }),
    counters: rejected.map(counterOf),
  };
}

/** The element that rejects the node port of a service port on loopback addresses, if any. */
export function localhostElements(port: ServicePort, rejected: readonly Protocol[] = []): SharedElement[] {
  const { protocol, nodePort } = port;
  if (!rejected.includes(protocol) || !ownedFrontends(port).some(({ kind }) => kind === "node-port")) return [];
  const element: NftElement = {
    key: [protocolName(protocol), nodePort],
    verdict: { kind: "goto", chain: localhostRejectChain(protocol) },
  };
  return [{ set: SETS.localhostRejectPorts, element }];
}

function counterOf(protocol: Protocol): string {
  return `localhost-nodeport-rejected-${protocolName(protocol)}`;
}

/** The protocol whose rejected packets a counter counts; undefined for counters of other programs. */
export function protocolCounted(counter: string): Protocol | undefined {
  return PROTOCOLS.find((protocol) => counterOf(protocol) === counter);
}

/** The fixed sets that some rule uses. */
export function setsInForce(sets: readonly NftSet[], config: PlanConfig, facts: PlanFacts): readonly NftSet[] {
  const matchesAll = facts.nodePortIPs.kind === "all";
  const rejects = (config.rejectedAtLocalhost ?? []).length > 0;
  return sets.filter((set) => (set !== NODE_PORT_IPS || !matchesAll) && (set !== LOCALHOST_REJECT_PORTS || rejects));
}
