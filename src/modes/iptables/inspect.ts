/** A service port's rules and chains in iptables mode, and the owner of a chain: reference iptables.md §1, §3, §7. */
import { type KernelPart, type ModeInspection, namedParts } from "../../contract/inspection.ts";
import { fillFromIptables } from "../../contract/iptables-counters.ts";
import { TRANSLATING } from "../../contract/mode-words.ts";
import {
  CHAINS,
  endpointChain,
  endpointChainTest,
  isServiceChain,
  servicePortChains,
} from "../shared/iptables-rules/chain-names.ts";
import { savedLine } from "../shared/iptables-rules/saved-form.ts";
import { planInput } from "./plan-options.ts";
import { planServicePort } from "./plan-service-port.ts";

const RULES_OF: Readonly<Record<string, string>> = {
  [`nat ${CHAINS.services}`]: "finds the service by its address",
  [`filter ${CHAINS.services}`]: "refuses or drops at the cluster IP",
  [`nat ${CHAINS.nodePorts}`]: "finds the service by its node port",
  [`filter ${CHAINS.nodePorts}`]: "lets the load balancer's health check through",
  [`filter ${CHAINS.externalServices}`]: "refuses or drops at external addresses",
  [`filter ${CHAINS.proxyFirewall}`]: "drops clients outside of loadBalancerSourceRanges",
};

const SHARED: ReadonlyMap<string, string> = new Map([
  [CHAINS.services, "finds the service of a packet by destination address and port; in filter: refuses or drops"],
  [CHAINS.nodePorts, "finds the service of a packet to an address of the node by its node port"],
  [CHAINS.externalServices, "refuses or drops packets to external addresses and node ports without endpoints"],
  [CHAINS.proxyFirewall, "drops packets to load-balancer addresses from clients outside of their source ranges"],
  [CHAINS.firewall, "drops packets to 127.0.0.0/8 that come from elsewhere; the kubelet has a chain of this name, too"],
  [CHAINS.forward, "lets packets of services through where the policy of FORWARD is DROP"],
  [CHAINS.postrouting, "masquerades packets that carry the mark"],
  [CHAINS.markMasquerade, "marks packets that are masqueraded when they leave"],
  [CHAINS.canary, "is there to notice when another program deletes all chains"],
]);

/** In these chains, each rule has a destination of its own. */
const UNORDERED: ReadonlySet<string> = new Set([
  CHAINS.services,
  CHAINS.nodePorts,
  CHAINS.externalServices,
  CHAINS.proxyFirewall,
]);

/** Describes the iptables mode for people who inspect the kernel. */
export const inspectIptables: ModeInspection = {
  words: {
    ...TRANSLATING,
    loopback(facts) {
      const { led, notLed } = TRANSLATING.loopback(facts);
      if (facts.node.family === "IPv6")
        return { led, notLed: "the kernel does not route what comes from ::1 elsewhere" };
      return {
        led,
        notLed: facts.config.iptables.localhostNodePorts ? notLed : "iptables.localhostNodePorts is false",
      };
    },
  },
  choice: (_config, isWeighted) => `at random, ${isWeighted ? "by weight" : "each with the same chance"}`,
  sharedPurpose: (name) => SHARED.get(name),
  ownerTest(name) {
    if (!isServiceChain(name)) return undefined;
    if (!name.startsWith("KUBE-SEP-")) {
      return (port) => Object.values(servicePortChains(port)).some((chain) => chain === name);
    }
    const isOf = endpointChainTest(name);
    return (port, endpoints) => {
      for (const text of endpoints()) if (isOf(port, text)) return true;
      return false;
    };
  },
  *namesOf(port, endpoints) {
    const { cluster, local, external, firewall } = servicePortChains(port.name);
    yield { name: cluster, purpose: "chooses among the endpoints of the Cluster policy" };
    yield { name: local, purpose: "chooses among the endpoints of this node, for the Local policy" };
    yield { name: external, purpose: "takes what comes to external addresses and node ports" };
    yield { name: firewall, purpose: "lets through clients in loadBalancerSourceRanges" };
    for (const endpoint of endpoints) {
      yield {
        name: endpointChain(port.name, endpoint),
        purpose: `leads to the endpoint ${endpoint.text}`,
        endpoint: endpoint.text,
      };
    }
  },
  partsOf(node, kubeProxyConfig, port, endpoints) {
    const { config, facts } = planInput(kubeProxyConfig, node);
    const plan = planServicePort(port, endpoints, config, facts);
    const named = namedParts(inspectIptables.namesOf(port, endpoints), "nat");
    return [
      ...plan.shared.map(
        ({ table, rule }): KernelPart => ({
          kind: "rule",
          name: savedLine(rule, node.family),
          where: table,
          purpose: RULES_OF[`${table} ${rule.chain}`] ?? "",
        }),
      ),
      ...plan.ownChains.map((name) => named("chain", name)),
    ];
  },
  loadCounters: async () => ({
    isEndpointTracked: true,
    fill: (ports) =>
      fillFromIptables(ports, { addresses: [CHAINS.services], nodePorts: [CHAINS.nodePorts], endpoint: endpointChain }),
  }),
  comparison: {
    dumps: [{ kind: "iptables-save", form: "iptables-save" }],
    ownership: () => ({
      isOurs: ({ name }) => isServiceChain(name),
      isOurRule: (line) => [...SHARED.keys()].some((chain) => line.endsWith(` -j ${chain}`)),
      isUnordered: (name) => UNORDERED.has(name),
      isShared: (name) => name === CHAINS.firewall,
    }),
  },
};
