/**
 * The portal rules: what leads a packet for a service address to the socket of the proxy. Reference legacy-modes.md §1.2,
 * §1.3, §5 traps 7 and 8. Pure.
 */
import type { ChainName, Rule, RuleMatch, RuleProtocol, RuleTarget } from "../../kernel/iptables/rule.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, cidrContains, hostCidr, type IpAddress, isUnspecified, joinHostPort } from "../../net/ip.ts";
import type { ServicePortPlan, SharedRule } from "../iptables/plan-service-port.ts";
import type { JumpRule, StaticPlan } from "../iptables/plan-static.ts";
import type { Portal } from "./portals.ts";

/** Packets that come in from elsewhere pass the `container` chains, those of the host itself the `host` ones. */
export const PORTAL_CHAINS = {
  container: "KUBE-PORTALS-CONTAINER" as ChainName,
  host: "KUBE-PORTALS-HOST" as ChainName,
  nodePortContainer: "KUBE-NODEPORT-CONTAINER" as ChainName,
  nodePortHost: "KUBE-NODEPORT-HOST" as ChainName,
  /** In filter; the others are in nat. */
  nodePortNonLocal: "KUBE-NODEPORT-NON-LOCAL" as ChainName,
} as const;

const LOCAL: RuleMatch = { kind: "address-type", side: "destination", type: "LOCAL" };
const PORTALS = "handle ClusterIPs; NOTE: this must be before the NodePort rules";
const NODE_PORTS = "handle service NodePorts; NOTE: this must be the last rule in the chain";
const NON_LOCAL = "Ensure that non-local NodePort traffic can flow";

function jump(
  table: JumpRule["table"],
  source: string,
  target: ChainName,
  comment: string,
  matches: readonly RuleMatch[] = [],
): JumpRule {
  const rule: Rule = {
    chain: source,
    matches: [...matches, { kind: "comment", text: comment }],
    target: { kind: "jump", chain: target },
  };
  // Node ports come last: their match takes every local address.
  return { table, rule, target, isShared: false, position: matches.length > 0 ? "end" : "head" };
}

/** In the order in which they are ensured. */
export const PORTAL_JUMPS: readonly JumpRule[] = [
  jump("nat", "PREROUTING", PORTAL_CHAINS.container, PORTALS),
  jump("nat", "OUTPUT", PORTAL_CHAINS.host, PORTALS),
  jump("nat", "PREROUTING", PORTAL_CHAINS.nodePortContainer, NODE_PORTS, [LOCAL]),
  jump("nat", "OUTPUT", PORTAL_CHAINS.nodePortHost, NODE_PORTS, [LOCAL]),
  jump("filter", "INPUT", PORTAL_CHAINS.nodePortNonLocal, NON_LOCAL),
];

/** What a full payload declares: chains that are there whatever services there are, and no rule of their own. */
export const PORTAL_STATIC_PLAN: StaticPlan = {
  filterChains: [PORTAL_CHAINS.nodePortNonLocal],
  natChains: [PORTAL_CHAINS.container, PORTAL_CHAINS.host, PORTAL_CHAINS.nodePortContainer, PORTAL_CHAINS.nodePortHost],
  filterHead: [],
  filterTail: [],
  natHead: [],
  natTail: [],
};

/** Constant for the life of the process. */
export interface PortalPlanConfig {
  /** Where the proxy's sockets listen; the unspecified address means everywhere. */
  readonly listenAddress: IpAddress;
  /** The node's own address: where its own packets are sent when the sockets listen everywhere. */
  readonly hostAddress: IpAddress;
  /** Whether rules may ask if a packet came in by a bridge port (xt_physdev). Without it, none does. */
  readonly knowsBridgePorts: boolean;
}

/** Plans the rules that lead to `proxyPort`. @param portals those of the service port that are its own. */
export function planPortalRules(
  port: ServicePort,
  portals: readonly Portal[],
  proxyPort: number,
  config: PortalPlanConfig,
): ServicePortPlan {
  const plan = new PortPlanner(port, proxyPort, config);
  return {
    shared: portals.flatMap((portal) => plan.rulesOf(portal)),
    ownChains: [],
    ownRules: [],
    lacksLocal: { internal: false, external: false },
  };
}

class PortPlanner {
  readonly #port: ServicePort;
  readonly #proxyPort: number;
  readonly #config: PortalPlanConfig;
  readonly #fromContainers: RuleTarget;
  readonly #fromHost: RuleTarget;
  readonly #bridgeMatches: readonly RuleMatch[];

  constructor(port: ServicePort, proxyPort: number, config: PortalPlanConfig) {
    const { listenAddress, hostAddress, knowsBridgePorts } = config;
    const listensEverywhere = isUnspecified(listenAddress);
    const dnat = (address: IpAddress): RuleTarget => ({ kind: "dnat", to: joinHostPort(address, proxyPort) });
    this.#port = port;
    this.#proxyPort = proxyPort;
    this.#config = config;
    this.#fromContainers = listensEverywhere ? { kind: "redirect", port: proxyPort } : dnat(listenAddress);
    this.#fromHost = dnat(listensEverywhere ? hostAddress : listenAddress);
    this.#bridgeMatches = knowsBridgePorts ? [{ kind: "bridge-port-in", negate: true }] : [];
  }

  rulesOf(portal: Portal): SharedRule[] {
    if (portal.kind === "node-port") return this.#nodePortRules(portal);
    const sources: readonly RuleMatch[][] =
      portal.sources.length === 0 ? [[]] : this.#sourcesOf(portal).map((address) => [{ kind: "source", address }]);
    return sources.flatMap((source) => {
      const matches = [...this.#matches(portal.address, portal.port), ...source];
      return portal.kind === "external-ip" ? this.#externalRules(matches) : this.#plainRules(matches);
    });
  }

  /** Where the node has the address itself, that is the source of what the node sends there. */
  #sourcesOf({ address, sources }: Portal): readonly Cidr[] {
    const { hostAddress } = this.#config;
    const letsNodeIn = sources.some((range) => cidrContains(range, hostAddress));
    return letsNodeIn && address !== undefined ? [...sources, hostCidr(address)] : sources;
  }

  #plainRules(matches: readonly RuleMatch[]): SharedRule[] {
    return [
      nat(PORTAL_CHAINS.container, matches, this.#fromContainers),
      nat(PORTAL_CHAINS.host, matches, this.#fromHost),
    ];
  }

  /** Pods reach an external IP by way of whoever has it, unless that is this node. */
  #externalRules(matches: readonly RuleMatch[]): SharedRule[] {
    return [
      nat(PORTAL_CHAINS.container, [...matches, ...this.#bridgeMatches], this.#fromContainers),
      nat(PORTAL_CHAINS.container, [...matches, LOCAL], this.#fromContainers),
      nat(PORTAL_CHAINS.host, [...matches, LOCAL], this.#fromHost),
    ];
  }

  #nodePortRules({ address, port }: Portal): SharedRule[] {
    const matches = this.#matches(address, port);
    return [
      nat(PORTAL_CHAINS.nodePortContainer, matches, this.#fromContainers),
      nat(PORTAL_CHAINS.nodePortHost, matches, this.#fromHost),
      {
        table: "filter",
        rule: {
          chain: PORTAL_CHAINS.nodePortNonLocal,
          // The proxy's port and not the node port: INPUT comes after the redirection (trap 7).
          matches: [...this.#matches(undefined, this.#proxyPort), { kind: "state", states: ["NEW"] }],
          target: { kind: "accept" },
        },
      },
    ];
  }

  #matches(address: IpAddress | undefined, port: number): RuleMatch[] {
    const { name, protocol } = this.#port;
    const matches: RuleMatch[] = [
      { kind: "comment", text: name.text },
      // Protocol's values, lower-cased, are RuleProtocol's.
      { kind: "protocol", protocol: protocol.toLowerCase() as RuleProtocol },
      { kind: "destination-port", port },
    ];
    if (address !== undefined) matches.push({ kind: "destination", address: hostCidr(address) });
    return matches;
  }
}

function nat(chain: ChainName, matches: readonly RuleMatch[], target: RuleTarget): SharedRule {
  return { table: "nat", rule: { chain, matches, target } };
}
