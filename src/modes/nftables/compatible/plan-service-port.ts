/**
 * All that one service port owns in the table: chains, affinity sets, and elements of the shared sets and maps.
 * Reference nftables.md §3.4, §3.5, §4. The same input gives the same plan, in the same order.
 */

import type {
  NftChain,
  NftElement,
  NftRule,
  NftSet,
  NftStatement,
  NftVerdict,
} from "../../../kernel/nftables/ruleset.ts";
import { inCells } from "../../../model/cells.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import { frontendsOf, onePerDestination } from "../../../model/frontend.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../../model/service-port-routing.ts";
import { type ProtocolName, protocolName } from "../../../net/protocol.ts";
import { goTo, jumpTo, rule } from "../base-chains.ts";
import { allowedSources, localPolicyRules, masquerade } from "../common-rules.ts";
import { endpointMapOf } from "../flat/names.ts";
import { hashedElements } from "../flat/plan-service-port.ts";
import { localhostElements } from "../localhost-node-ports.ts";
import { CHAINS, endpointNames, SETS, type ServicePortChains, servicePortChains } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { ServicePortPlan, SharedElement } from "../table-plan.ts";
import { HASHED_CHOICE } from "./plan-static.ts";

interface Decisions {
  readonly config: PlanConfig;
  readonly port: ServicePort;
  readonly protocol: ProtocolName;
  readonly chains: ServicePortChains;
  readonly routing: ServicePortRouting;
  /** Load balancer traffic is limited to source ranges; unlike in iptables mode, even without endpoints. */
  readonly isRestricted: boolean;
}

/** Plans one service port. @param endpoints all its endpoints, sorted by text; empty when it has none. */
export function planServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
): ServicePortPlan {
  const d: Decisions = {
    config,
    port,
    protocol: protocolName(port.protocol),
    chains: servicePortChains(port.name),
    routing: routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone }),
    isRestricted: port.loadBalancerVIPs.length > 0 && port.loadBalancerSourceRanges.length > 0,
  };
  const { cluster, local } = d.routing;
  const elements = planElements(d);
  // Without an element, because others own its addresses, there may be no maps to look into.
  const isHashed = port.balancing !== undefined && elements.some(({ set }) => endpointMapOf(set) !== undefined);
  const [clusterChoice, localChoice] = isHashed ? [CLUSTER_CHOICE, HASHED_CHOICE.local] : [];
  const sticky = planEndpointChains(d);
  const chains = [...sticky.chains];
  if (cluster.length > 0) chains.push({ name: d.chains.cluster, rules: choiceRules(d, cluster, clusterChoice) });
  if (local.length > 0) chains.push({ name: d.chains.local, rules: choiceRules(d, local, localChoice) });
  if (d.routing.usesExternal) chains.push({ name: d.chains.external, rules: externalRules(d) });
  if (d.isRestricted) chains.push({ name: d.chains.firewall, rules: [firewallRule(d)] });
  return { affinitySets: sticky.sets, chains, elements };
}

/** Frontends of the Local policy have maps of all endpoints beside those of this node; others only have one map. */
const CLUSTER_CHOICE = [...HASHED_CHOICE.cluster, ...HASHED_CHOICE.local];

const goto = (chain: string): NftVerdict => ({ kind: "goto", chain });

/** With session affinity, each endpoint has a chain that remembers the client and the affinity set that holds it. */
function planEndpointChains(d: Decisions): { readonly sets: NftSet[]; readonly chains: NftChain[] } {
  const sets: NftSet[] = [];
  const chains: NftChain[] = [];
  if (d.port.sessionAffinity !== "ClientIP") return { sets, chains };
  for (const endpoint of d.routing.categories.reachable) {
    const { chain, affinitySet } = endpointNames(d.port.name, endpoint);
    const timeoutSeconds = d.port.stickyMaxAgeSeconds;
    sets.push({ name: affinitySet, key: ["address"], isMap: false, timeoutSeconds });
    chains.push({
      name: chain,
      rules: [
        rule({ kind: "update", set: affinitySet, field: "saddr" }),
        rule({ kind: "l4proto", protocol: d.protocol }, { kind: "dnat", to: { ip: endpoint.ip, port: endpoint.port } }),
      ],
    });
  }
  return { sets, chains };
}

/** Rules that choose among endpoints: nftables.md §4. @param shared the chains that choose by hash. @default random choice */
function choiceRules(d: Decisions, endpoints: readonly Endpoint[], shared?: readonly string[]): NftRule[] {
  const byHash = shared?.map((chain) => rule(jumpTo(chain)));
  if (d.port.sessionAffinity !== "ClientIP") {
    if (byHash !== undefined) return byHash;
    const targets = inCells(endpoints).map(({ ip, port }) => ({ ip, port }));
    const [only] = targets.length === 1 && d.config.release.plainSingleDnat ? targets : [];
    const dnat: NftStatement = only === undefined ? { kind: "random-dnat", targets } : { kind: "dnat", to: only };
    return [rule({ kind: "l4proto", protocol: d.protocol }, dnat)];
  }
  const named = endpoints.map((endpoint) => ({ ...endpoint, ...endpointNames(d.port.name, endpoint) }));
  const returning = named.map(({ chain, affinitySet }) =>
    rule({ kind: "lookup", fields: ["saddr"], set: affinitySet }, goTo(chain)),
  );
  if (byHash !== undefined) return [...returning, ...byHash];
  const verdicts = inCells(named).map(({ chain }) => goto(chain));
  return [...returning, rule({ kind: "random-vmap", verdicts })];
}

/** The chain that all external addresses and the node port lead to. */
function externalRules({ port, chains, routing, config }: Decisions): NftRule[] {
  const [ways, chosen] = port.externalPolicyLocal
    ? [localPolicyRules(config, goTo(chains.cluster)), chains.local]
    : [[masquerade(config)], chains.cluster];
  return routing.hasExternal ? [...ways, rule(goTo(chosen))] : ways;
}

function firewallRule({ port, config }: Decisions): NftRule {
  const cidrs = allowedSources(port, config);
  return rule({ kind: "address", side: "saddr", negate: true, cidrs }, { kind: "verdict", verdict: { kind: "drop" } });
}

/** Elements of shared sets and maps, nftables.md §3.5. */
function planElements({ port, routing, protocol, chains, config, isRestricted }: Decisions): readonly SharedElement[] {
  const elements: SharedElement[] = localhostElements(port, config.rejectedAtLocalhost);
  const add = (set: string, element: NftElement) => elements.push({ set, element });
  // Names are ASCII: the API server and the projection guarantee that.
  const comment = port.name.text.slice(0, config.release.elementCommentBytes);

  for (const { ip, port: endpointPort, isLocal } of routing.categories.reachable) {
    if (isLocal) add(SETS.hairpinConnections, { key: [ip, ip, protocol, endpointPort] });
  }
  add(SETS.clusterIPs, { key: [port.clusterIP] });
  const chainOf = (endpoint: Endpoint): string => endpointNames(port.name, endpoint).chain;
  const isSticky = port.sessionAffinity === "ClientIP";
  const hashed = hashedElements(port, routing, config, isSticky ? chainOf : undefined);
  for (const frontend of onePerDestination(port, frontendsOf(port, routing))) {
    if (hashed !== undefined) elements.push(...hashed(frontend));
    const { kind, address, fate } = frontend;
    const key = address === undefined ? [protocol, frontend.port] : [address, protocol, frontend.port];
    const isNodePort = address === undefined;
    const refusal: NftVerdict = fate === "drop" ? { kind: "drop" } : goto(CHAINS.reject);
    if (kind === "cluster-ip") {
      const chain = port.internalPolicyLocal ? chains.local : chains.cluster;
      if (fate === "serve") add(SETS.serviceIPs, { key, verdict: goto(chain) });
    } else if (fate !== "refuse") {
      add(isNodePort ? SETS.serviceNodePorts : SETS.serviceIPs, { key, verdict: goto(chains.external) });
    }
    if (fate !== "serve") {
      add(isNodePort ? SETS.noEndpointNodePorts : SETS.noEndpointServices, { key, verdict: refusal, comment });
    }
    if (kind === "load-balancer" && isRestricted) add(SETS.firewallIPs, { key, verdict: goto(chains.firewall) });
  }
  return elements;
}
