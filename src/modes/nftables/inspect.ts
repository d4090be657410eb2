/** What a service port owns in nftables mode, and which one owns a chain or set: reference nftables.md §3, §5. */

import { type KernelPart, type ModeInspection, namedParts } from "../../contract/inspection.ts";
import { TRANSLATING } from "../../contract/mode-words.ts";
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { elementText } from "../../kernel/nftables/ruleset-text.ts";
import { PROTOCOLS } from "../../net/protocol.ts";
import { BASE_CHAINS } from "./base-chains.ts";
import { SHARED_SETS } from "./compatible/plan-static.ts";
import { layoutOf } from "./config.ts";
import {
  ALLOWED_SOURCES,
  CLIENTS,
  type EndpointMap,
  endpointMapOf,
  FLAT_CHAINS,
  FLAT_SETS,
  hashClassOf,
  isChainOnDemand,
  isOfNodePorts,
  numberIn,
  STICKY_SETS,
} from "./flat/names.ts";
import { FIXED_SETS } from "./flat/sets.ts";
import { LAYOUTS, sharedSetOfAny } from "./layouts.ts";
import { localhostRejectChain, localhostWords } from "./localhost-node-ports.ts";
import { CHAINS, endpointNames, FAMILIES, portText, portTextOf, SETS, servicePortChains, TABLE } from "./names.ts";
import { planInput } from "./plan-input.ts";

const ELEMENTS_OF: Readonly<Record<string, string>> = {
  [SETS.hairpinConnections]: "masquerades an endpoint that reaches itself",
  [SETS.clusterIPs]: "marks this address as a cluster IP",
  [SETS.noEndpointServices]: "refuses or drops at this address",
  [SETS.noEndpointNodePorts]: "refuses or drops at this node port",
  [SETS.firewallIPs]: "checks loadBalancerSourceRanges first",
  [SETS.localhostRejectPorts]: "refuses at this node port on loopback addresses",
  [SETS.serviceIPs]: "finds the service by its address",
  [SETS.serviceNodePorts]: "finds the service by its node port",
  [FLAT_SETS.frontends]: "finds the service by its address",
  [FLAT_SETS.nodePorts]: "finds the service by its node port",
  [FLAT_SETS.masqueradedFrontends]: "masquerades connections to this address",
  [FLAT_SETS.localPolicyFrontends]: "limits clients outside this node to its local endpoints",
  [FLAT_SETS.localPolicyNodePorts]: "limits clients outside this node to its local endpoints",
  [FLAT_SETS.rejectedFrontends]: "refuses at this address",
  [FLAT_SETS.rejectedNodePorts]: "refuses at this node port",
  [FLAT_SETS.droppedFrontends]: "drops at this address",
  [FLAT_SETS.droppedNodePorts]: "drops at this node port",
  [FLAT_SETS.restrictedFrontends]: "checks loadBalancerSourceRanges first",
};

const SHARED: ReadonlyMap<string, string> = new Map([
  [CHAINS.services, "finds the service of a packet, by the maps service-ips and service-nodeports"],
  [CHAINS.masquerading, "masquerades packets that carry the mark, and endpoints that reach themselves"],
  [CHAINS.serviceEndpointsCheck, "refuses or drops packets to service addresses without endpoints"],
  [CHAINS.nodePortEndpointsCheck, "refuses or drops packets to node ports without endpoints"],
  [CHAINS.firewallCheck, "drops clients of load-balancer addresses outside of their source ranges"],
  [CHAINS.clusterIPsCheck, "refuses other ports of cluster IPs, and drops packets to unused ServiceCIDR addresses"],
  [CHAINS.reject, "refuses"],
  ...PROTOCOLS.map(
    (name) =>
      [localhostRejectChain(name), `refuses node ports of ${name} on loopback addresses, and counts that`] as const,
  ),
  ...BASE_CHAINS.map((name) => [name, "receives packets from the kernel's hook of that name"] as const),
  ...FIXED_SETS.map(({ name, comment = "" }) => [name, comment] as const),
  [FLAT_CHAINS.frontend, "handles packets to service addresses (flat layout)"],
  [FLAT_CHAINS.frontendLocalPolicy, "lets this node and its pods reach any endpoint (flat layout)"],
  [FLAT_CHAINS.frontendEndpoints, "chooses among endpoints, by the maps endpoints-N (flat layout)"],
  [FLAT_CHAINS.frontendClusterEndpoints, "chooses among endpoints of the Cluster policy (flat layout)"],
  [FLAT_CHAINS.nodePort, "handles packets to node ports (flat layout)"],
  [FLAT_CHAINS.nodePortLocalPolicy, "lets this node and its pods reach any endpoint (flat layout)"],
  [FLAT_CHAINS.nodePortEndpoints, "chooses among endpoints, by the maps nodeport-endpoints-N (flat layout)"],
  [FLAT_CHAINS.nodePortClusterEndpoints, "chooses among endpoints of the Cluster policy (flat layout)"],
  [FLAT_CHAINS.sourceCheck, "drops clients outside of source ranges, by the sets allowed-sources-N (flat layout)"],
  [FLAT_CHAINS.rememberClients, "remembers each client's endpoint (flat layout)"],
  ...SHARED_SETS.map(({ name, comment = "" }) => [name, comment] as const),
]);

/** Describes the nftables mode's kernel objects for people. */
export const inspectNftables: ModeInspection = {
  words: { ...TRANSLATING, loopback: localhostWords },
  choice: (_config, isWeighted) => `at random, ${isWeighted ? "by weight" : "each with the same chance"}`,
  sharedPurpose: (name) => SHARED.get(name) ?? numberedPurpose(name),
  ownerTest(name) {
    const text = portTextOf(name);
    return text === undefined ? undefined : (port) => portText(port) === text;
  },
  *namesOf(port, endpoints) {
    const { cluster, local, external, firewall } = servicePortChains(port.name);
    yield { name: cluster, purpose: "chooses among the endpoints of the Cluster policy" };
    yield { name: local, purpose: "chooses among the endpoints of this node, for the Local policy" };
    yield { name: external, purpose: "takes what comes to external addresses and node ports" };
    yield { name: firewall, purpose: "drops clients outside of loadBalancerSourceRanges" };
    if (port.sessionAffinity !== "ClientIP") return;
    for (const endpoint of endpoints) {
      const { chain, affinitySet } = endpointNames(port.name, endpoint);
      const { text } = endpoint;
      yield { name: chain, purpose: `remembers the client, and leads to endpoint ${text}`, endpoint: text };
      yield { name: affinitySet, purpose: `holds the clients of endpoint ${text}`, endpoint: text };
    }
  },
  partsOf(node, kubeProxyConfig, port, endpoints) {
    const layout = LAYOUTS[layoutOf(kubeProxyConfig.nftables)];
    const { config, facts } = planInput(kubeProxyConfig, node);
    const plan = layout.planServicePort(port, endpoints, config, facts);
    const table = `table ${FAMILIES[node.family]} ${TABLE}`;
    const named = namedParts(inspectNftables.namesOf(port, endpoints), table);
    return [
      ...plan.elements.map(
        ({ set, element }): KernelPart => ({
          kind: "element",
          name: elementText(element),
          where: `${table} ${isMap(sharedSet(set)) ? "map" : "set"} ${set}`,
          purpose: purposeOf(set),
        }),
      ),
      ...plan.chains.map(({ name }) => named("chain", name)).reverse(),
      ...plan.affinitySets.map(({ name }) => named("set", name)),
    ];
  },
  loadCounters: async () => (await import("./counters.ts")).nftablesCounters,
  comparison: {
    dumps: [{ kind: "nft", form: "text" }],
    nftTable: TABLE,
    // We own the whole table.
    ownership: () => ({
      isOurs: () => true,
      isOurRule: () => true,
      isUnordered: () => false,
      isShared: () => false,
    }),
  },
};

function frontendsOf(map: EndpointMap): string {
  const narrowed = map.includes("cluster") ? " of the Local policy, for clients on this node," : "";
  return `${isOfNodePorts(map) ? "node ports" : "service addresses"}${narrowed}`;
}

/** The purpose of flat-layout chains and sets whose names end in a number. */
function numberedPurpose(name: string): string | undefined {
  if (isChainOnDemand(name)) return "uses the map of one number of slots, or of one affinity timeout (flat layout)";
  const bits = numberIn(name, ALLOWED_SOURCES);
  if (bits !== undefined) return `admits clients by the first ${bits} bits of their addresses (flat layout)`;
  const endpoints = endpointMapOf(name);
  if (endpoints !== undefined) {
    const { map, slots } = endpoints;
    return `leads ${frontendsOf(map)} with ${slots} slots to the endpoint in a random slot (flat layout), or in that of a client's hash`;
  }
  const hashed = hashClassOf(name);
  if (hashed !== undefined) return `holds the ${frontendsOf(hashed.map)} that choose by ${hashed.hashing}`;
  const clients = numberIn(name, CLIENTS);
  if (clients !== undefined) return `remembers each client's endpoint for ${clients} seconds (flat layout)`;
  for (const [base, what] of STICKY_PURPOSES) {
    const seconds = numberIn(name, base);
    if (seconds !== undefined) return `holds the ${what} with session affinity of ${seconds} seconds (flat layout)`;
  }
  return undefined;
}

const STICKY_PURPOSES: readonly (readonly [string, string])[] = [
  [STICKY_SETS.frontend, "service addresses"],
  [STICKY_SETS.nodePort, "node ports"],
];

function purposeOf(set: string): string {
  const known = ELEMENTS_OF[set];
  if (known !== undefined) return known;
  if (numberIn(set, ALLOWED_SOURCES) !== undefined) return "admits these clients";
  if (hashClassOf(set) !== undefined) return "lets a hash of the client choose";
  return endpointMapOf(set) !== undefined ? "leads to an endpoint" : "gives clients session affinity";
}

function isMap({ isMap: hasVerdicts, hasTargets }: NftSet): boolean {
  return hasVerdicts || hasTargets === true;
}

function sharedSet(name: string): NftSet {
  return sharedSetOfAny(name) ?? { name, key: [], isMap: false };
}
