/** What a service port owns in nftables mode, and whose a chain or set is: reference nftables.md §3, §5. */
import type { NftSet } from "../../kernel/nftables/ruleset.ts";
import { elementText } from "../../kernel/nftables/ruleset-text.ts";
import type { KernelPart, ModeInspection, OwnName } from "../inspection.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";
import { CHAINS, endpointNames, SETS, servicePortChains, TABLE } from "./names.ts";
import { offlineOptions } from "./offline-options.ts";
import { planServicePort } from "./compatible/plan-service-port.ts";
import { BASE_CHAINS } from "./base-chains.ts";
import { SHARED_SETS } from "./compatible/plan-static.ts";

const ELEMENTS_OF: Readonly<Record<string, string>> = {
  [SETS.hairpinConnections]: "masquerades an endpoint that reaches itself",
  [SETS.clusterIPs]: "is known as a cluster IP",
  [SETS.noEndpointServices]: "refuses or drops at this address",
  [SETS.noEndpointNodePorts]: "refuses or drops at this node port",
  [SETS.firewallIPs]: "asks for loadBalancerSourceRanges first",
  [SETS.serviceIPs]: "finds the service by its address",
  [SETS.serviceNodePorts]: "finds the service by its node port",
};

const SHARED: ReadonlyMap<string, string> = new Map([
  [CHAINS.services, "finds the service of a packet, by the maps service-ips and service-nodeports"],
  [CHAINS.masquerading, "masquerades packets that carry the mark, and endpoints that reach themselves"],
  [CHAINS.serviceEndpointsCheck, "refuses or drops packets to service addresses without endpoints"],
  [CHAINS.nodePortEndpointsCheck, "refuses or drops packets to node ports without endpoints"],
  [CHAINS.firewallCheck, "drops clients of load-balancer addresses outside of their source ranges"],
  [CHAINS.clusterIPsCheck, "refuses other ports of cluster IPs, and drops unused addresses of the service networks"],
  [CHAINS.reject, "refuses"],
  ...BASE_CHAINS.map((name) => [name, "takes packets from the kernel's hook of that name"] as const),
  ...SHARED_SETS.map(({ name, comment = "" }) => [name, comment] as const),
]);

/** The nftables mode, seen by people who look at the kernel. */
export const inspectNftables: ModeInspection = {
  choice: () => "at random, each with the same chance",
  sharedNames: () => SHARED,
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
      yield { name: chain, purpose: `remembers the client, and leads to the endpoint ${text}`, endpoint: text };
      yield { name: affinitySet, purpose: `holds the clients of the endpoint ${text}`, endpoint: text };
    }
  },
  partsOf(node, { masqueradeAll, nftables }, key) {
    const { state, family } = node;
    const port = state.services.get(key);
    if (port === undefined) return [];
    const endpoints = state.endpoints.get(key) ?? [];
    const { config, facts } = offlineOptions(node, { masqueradeAll, masqueradeMark: masqueradeMarkOf(nftables) });
    const plan = planServicePort(port, endpoints, config, facts);
    const table = `table ${family === "IPv4" ? "ip" : "ip6"} ${TABLE}`;
    const names = new Map<string, OwnName>();
    for (const own of inspectNftables.namesOf(port, endpoints)) names.set(own.name, own);
    const named = (kind: "chain" | "set", name: string): KernelPart => {
      const { purpose = "", endpoint } = names.get(name) ?? {};
      return { kind, name, where: table, purpose, ...(endpoint !== undefined && { endpoint }) };
    };
    return [
      ...plan.elements.map(
        ({ set, element }): KernelPart => ({
          kind: "element",
          name: elementText(element, sharedSet(set)),
          where: `${table} ${sharedSet(set).isMap ? "map" : "set"} ${set}`,
          purpose: ELEMENTS_OF[set] ?? "",
        }),
      ),
      ...plan.chains.map(({ name }) => named("chain", name)).reverse(),
      ...plan.affinitySets.map(({ name }) => named("set", name)),
    ];
  },
};

function sharedSet(name: string): NftSet {
  return SHARED_SETS.find((shared) => shared.name === name) ?? { name, key: [], isMap: false };
}
