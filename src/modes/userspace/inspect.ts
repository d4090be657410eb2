/** The rules or sockets of a service port in userspace mode. Reference userspace.md §1.3. */
import type { KernelPart, ModeInspection } from "../../contract/inspection.ts";
import { fillFromIptables } from "../../contract/iptables-counters.ts";
import { TRANSLATING } from "../../contract/mode-words.ts";
import { savedLine } from "../shared/iptables-rules/saved-form.ts";
import { listenersOf, planOfService, planUserspace } from "./cluster-plan.ts";
import { PORTAL_CHAINS } from "./plan-portal-rules.ts";

const CHAIN_PURPOSES: ReadonlyMap<string, string> = new Map([
  [PORTAL_CHAINS.container, "leads packets to service addresses that come from elsewhere to the proxy's sockets"],
  [PORTAL_CHAINS.host, "leads the node's own packets to service addresses to the proxy's sockets"],
  [PORTAL_CHAINS.nodePortContainer, "leads packets to node ports that come from elsewhere to the proxy's sockets"],
  [PORTAL_CHAINS.nodePortHost, "leads the node's own packets to node ports to the proxy's sockets"],
  [PORTAL_CHAINS.nodePortNonLocal, "lets packets to node ports through"],
  [PORTAL_CHAINS.unserved, "refuses or drops packets to service addresses without endpoints"],
]);

/** The chains that lead connections to the proxy, for addresses and for node ports. */
const PORTAL_RULES = {
  addresses: [PORTAL_CHAINS.container, PORTAL_CHAINS.host],
  nodePorts: [PORTAL_CHAINS.nodePortContainer, PORTAL_CHAINS.nodePortHost],
};

/** Descriptions for people who inspect the kernel. */
export const inspectUserspace: ModeInspection = {
  words: {
    ...TRANSLATING,
    sources: () => ["The proxy carries the bytes itself, so endpoints always see this node's address."],
    // Without endpoints, packets from elsewhere are refused.
    notTaken: (_position, isBarred, protocol) =>
      protocol === "SCTP" ? "protocol-not-served" : isBarred ? "source-ranges" : "only-from-elsewhere",
  },
  choice: (_config, isWeighted) => `in turn${isWeighted ? " and by weight" : ""}, by the proxy's own process`,
  sharedPurpose: (name) => CHAIN_PURPOSES.get(name),
  ownerTest: () => undefined,
  // Service ports own no chains, only rules in shared ones.
  namesOf: () => [],
  // Conntrack sees connections to the proxy's sockets; only the daemon knows their endpoints.
  loadCounters: async () => ({
    isEndpointTracked: false,
    fill: async (ports) => [
      ...(await fillFromIptables(ports, PORTAL_RULES)),
      "The proxy carries the bytes itself: a running daemon tells the connections of endpoints.",
    ],
  }),
  partsOf(node, config, { name }) {
    const plan = planOfService(planUserspace(node, config), name.service);
    const own = plan.ports.find((one) => one.port.name.key === name.key);
    if (own === undefined) return [];
    if (own.plan === undefined) {
      return listenersOf(plan, own).map(
        (place): KernelPart => ({ kind: "socket", name: place, where: "kube-proxy", purpose: "takes connections" }),
      );
    }
    return own.plan.shared.map(
      ({ table, rule }): KernelPart => ({
        kind: "rule",
        name: savedLine(rule, node.family),
        where: table,
        purpose: CHAIN_PURPOSES.get(rule.chain) ?? "",
      }),
    );
  },
};
