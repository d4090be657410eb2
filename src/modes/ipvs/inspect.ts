/** What a service port owns in ipvs mode, and the purpose of the shared sets and chains: reference ipvs.md §2, §3, §6. */
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { KernelPart, ModeInspection } from "../../contract/inspection.ts";
import { TRANSLATING } from "../../contract/mode-words.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { cidrContains, familyOf, parseHostPort } from "../../net/ip.ts";
import { excludedPrefixes, schedulerOf, withWeights } from "./config.ts";
import { ipsetEntryText } from "./ipset/ipset.ts";
import { virtualServerText } from "./kernel/ipvs.ts";
import { CHAINS, DUMMY_DEVICE, SET_IDS, SETS, setName } from "./names.ts";
import { planInput } from "./node-facts.ts";
import { planServicePort } from "./plan-service-port.ts";

const SHARED_CHAINS: ReadonlyMap<string, string> = new Map([
  [CHAINS.services, "decides by the IP sets which packets to service addresses are masqueraded"],
  [CHAINS.postrouting, "masquerades packets that carry the mark, and endpoints that reach themselves"],
  [CHAINS.nodePort, "decides by the IP sets which packets to node ports are masqueraded"],
  [CHAINS.loadBalancer, "masquerades packets to load-balancer addresses, but for those with the Local policy"],
  [CHAINS.markMasquerade, "marks packets that are masqueraded when they leave"],
  [CHAINS.forward, "lets packets of services through where the policy of FORWARD is DROP"],
  [CHAINS.proxyFirewall, "leads packets to load-balancer addresses with source ranges to their check"],
  [CHAINS.sourceRangesFirewall, "drops clients outside of loadBalancerSourceRanges"],
  [CHAINS.ipvsFilter, "refuses other ports of service addresses, which are the node's own"],
  [CHAINS.ipvsOutFilter, "drops what the node sends to load-balancer addresses that it may not use"],
  [DUMMY_DEVICE, "has the service addresses, so that the kernel takes packets to them for its own"],
]);

/** External addresses that other Nodes have: on kube-ipvs0, they would make those Nodes unreachable from here. */
function leftToNodes({ otherNodes }: OfflineNode, { externalIPs, loadBalancerVIPs }: ServicePort): string[] {
  return [...externalIPs, ...loadBalancerVIPs].flatMap((address) => {
    const name = otherNodes?.get(address);
    return name === undefined
      ? []
      : `${address} is the address of Node ${name}, so ${DUMMY_DEVICE} does not take it here: packets to it go to that Node.`;
  });
}

/** Descriptions for people who inspect the kernel. */
export const inspectIpvs: ModeInspection = {
  // A Local policy also applies to the node and its pods.
  words: {
    ...TRANSLATING,
    localPolicy: "",
    notTaken: () => "another-nodes",
    sources: (facts) => [...TRANSLATING.sources(facts), ...leftToNodes(facts.node, facts.port)],
    loopback: () => ({ led: "IPVS serves it", notLed: "IPVS has no virtual server at loopback addresses" }),
  },
  warnings: (node, port) => leftToNodes(node, port).map((sentence) => `${port.name.text}: ${sentence}`),
  choice: ({ ipvs }, isWeighted) => `by the kernel's scheduler ${withWeights(schedulerOf(ipvs), isWeighted)}`,
  sharedPurpose(name, family) {
    const id = SET_IDS.find((one) => setName(one, family) === name);
    return id === undefined ? SHARED_CHAINS.get(name) : SETS[id].comment;
  },
  ownerTest: () => undefined,
  // Names are shared; the entries and virtual servers of a service port are found by their addresses.
  namesOf: () => [],
  partsOf(node, kubeProxyConfig, port, endpoints) {
    const { config, facts } = planInput(kubeProxyConfig, node);
    const plan = planServicePort(port, endpoints, config, facts);
    return [
      ...plan.virtualServers.map(
        ({ virtualServer, endpoints }): KernelPart => ({
          kind: "virtual server",
          name: virtualServerText(virtualServer),
          where: "ipvs",
          purpose:
            endpoints.length === 0
              ? "has no real server, so it refuses"
              : `chooses among ${endpoints.map(({ text }) => text).join(", ")}`,
        }),
      ),
      ...plan.entries.map(
        ({ set, entry }): KernelPart => ({
          kind: "ipset entry",
          name: ipsetEntryText(entry),
          where: setName(set, node.family),
          purpose: SETS[set].comment,
        }),
      ),
      ...plan.addresses.map(
        (name): KernelPart => ({
          kind: "address",
          name,
          where: DUMMY_DEVICE,
          purpose: "makes the node take the packets",
        }),
      ),
    ];
  },
  loadCounters: async () => (await import("./counters.ts")).ipvsCounters,
  comparison: {
    dumps: [
      { kind: "iptables-save", form: "iptables-save" },
      { kind: "ipset", form: "ipset" },
      { kind: "ipvsadm", form: "ipvsadm" },
    ],
    ownership: (families, { ipvs }) => ({
      isOurs: ({ kind, name }) => {
        if (kind === "virtual server") {
          const address = parseHostPort(name.slice(0, name.indexOf("/")))?.address;
          if (address === undefined || !families.includes(familyOf(address))) return false;
          return !excludedPrefixes(ipvs).some((cidr) => cidrContains(cidr, address));
        }
        return kind === "set" && families.some((family) => SET_IDS.some((id) => setName(id, family) === name));
      },
      isOurRule: (line) => [...SHARED_CHAINS.keys()].some((chain) => line.endsWith(` -j ${chain}`)),
      isUnordered: () => false,
      isShared: () => false,
    }),
  },
};
