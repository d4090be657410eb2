/**
 * The tables of the userspace mode for `trace`: rules are spelled when they are looked at, and those of service ports that no packet
 * in question can meet are counted.
 */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import type { SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../model/service-port-routing.ts";
import { cidrContains, type IpAddress, joinHostPort } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import type { PlannedRelay, PlannedRelays } from "../relay-chain.ts";
import { CountsBetween, type InTable } from "../shared/iptables-rules/counted-rules.ts";
import type { SharedRule } from "../shared/iptables-rules/rules-plan.ts";
import {
  jumpRules,
  jumpTargets,
  savedTables,
  type TableContent,
  type UnplannedRules,
} from "../shared/iptables-rules/saved-form.ts";
import { FreePorts, planConfigOf, portalsIn, portsFrom } from "./cluster-plan.ts";
import {
  PORTAL_CHAINS,
  PORTAL_JUMPS,
  PORTAL_STATIC_PLAN,
  type PortalPlanConfig,
  planPortalRules,
} from "./plan-portal-rules.ts";
import { isServed, type Lane, laneOf, lanesOf, type Portal } from "./portals.ts";
import { isRelayed } from "./service-relays.ts";

type Rules = readonly InTable<Rule | UnplannedRules>[];

/** What packets meet: rules, and the sockets behind them. */
interface PlannedTables {
  readonly tables: ReadonlyMap<string, SavedTable>;
  readonly relays: PlannedRelays;
}

/** No rule where there are to be none. @throws Error when the configuration does not let the proxy listen. */
export function plannedTables(node: OfflineNode, config: KubeProxyConfig): PlannedTables {
  if (config.userspace.rules !== "iptables") return { tables: new Map(), relays: listeningRelays(node) };
  const relays = new Map<string, PlannedRelay>();
  const shared = sharedRules(node, config, relays);
  const content = (table: "filter" | "nat", chains: readonly string[]): TableContent<Rule | UnplannedRules> => ({
    chains: [...chains, ...jumpTargets(table, PORTAL_JUMPS)],
    rules: [
      ...jumpRules(table, PORTAL_JUMPS),
      ...shared.flatMap((rules) => rules.filter((one) => one.table === table).map(({ rule }) => rule)),
    ],
  });
  const { filterChains, natChains } = PORTAL_STATIC_PLAN;
  const contents = { filter: content("filter", filterChains), nat: content("nat", natChains) };
  return { tables: savedTables(contents, node.family), relays };
}

/** The proxy listens at the addresses themselves, and looks at its clients. */
function listeningRelays(node: OfflineNode): PlannedRelays {
  const relays = new Map<string, PlannedRelay>();
  for (const [key, port] of node.state.services) {
    if (!isRelayed(port.name)) continue;
    const routing = routingIn(node, key, port);
    for (const portal of portalsIn(node, port)) {
      const { address, port: number, sources } = portal;
      const place = address === undefined ? String(number) : joinHostPort(address, number);
      relays.set(`${protocolName(port.protocol)} ${place}`, {
        port,
        endpointsFor({ source, inInterface }) {
          const isIn = sources.length === 0 || sources.some((range) => cidrContains(range, source));
          const lane = laneOf(portal, inInterface === "" || isPod(node, source));
          return isIn && isServed(portal, lane) ? routing[lane] : [];
        },
      });
    }
  }
  return relays;
}

const routingIn = ({ name, zone, state }: OfflineNode, key: string, port: ServicePort): ServicePortRouting =>
  routeServicePort(port, state.endpoints.get(key) ?? [], { nodeName: name, zone });

const isPod = ({ detector }: OfflineNode, address: IpAddress): boolean =>
  detector.kind === "cidr" && cidrContains(detector.cidr, address);

/** In the order of the keys, in which the proxy's ports are counted as well. */
function sharedRules(node: OfflineNode, config: KubeProxyConfig, relays: Map<string, PlannedRelay>): Rules[] {
  const { state, others = [] } = node;
  const planConfig = planConfigOf(node, config);
  const freePorts = new FreePorts(config.userspace.portRange);
  const otherOf = new Map(others.map((other) => [other.key, other]));
  const known = new Map<string, StandIn>();
  const between = new CountsBetween((like) => known.get(like)?.closed ?? []);
  const found: Rules[] = [];
  for (const key of [...state.services.keys(), ...otherOf.keys()].sort()) {
    const other = otherOf.get(key);
    const like = other?.like ?? key;
    let standIn = known.get(like);
    if (standIn === undefined) {
      const port = state.services.get(like);
      if (port === undefined || !isRelayed(port.name)) continue;
      standIn = new StandIn(port, portalsIn(node, port), planConfig);
      known.set(like, standIn);
    }
    const first = freePorts.take(standIn.lanes.size);
    if (first === undefined) continue;
    if (other === undefined) {
      found.push(between.take(), standIn.rulesFor(first));
      const { port } = standIn;
      const routing = routingIn(node, key, port);
      for (const [lane, proxyPort] of Object.entries(portsFrom(first, standIn.lanes))) {
        const endpoints = lane === "local" ? routing.local : routing.cluster;
        relays.set(`${protocolName(port.protocol)} ${proxyPort}`, { port, endpointsFor: () => endpoints });
      }
    } else {
      between.add(like);
      if (standIn.hasOpenPorts) found.push(between.take(), standIn.openFor(first, other.text));
    }
  }
  found.push(between.take());
  return found;
}

const isOpen = ({ rule }: SharedRule): boolean => rule.chain === PORTAL_CHAINS.nodePortNonLocal;

/** A service port, in place of all that have as many rules. */
class StandIn {
  readonly lanes: ReadonlySet<Lane>;
  /** Rules in which it names itself; with any ports of the proxy. */
  readonly closed: readonly SharedRule[];
  /** Rules that let in packets to the proxy's own ports name nothing else, so they are needed whichever service port is asked for. */
  readonly hasOpenPorts: boolean;
  readonly port: ServicePort;
  readonly #portals: readonly Portal[];
  readonly #config: PortalPlanConfig;

  constructor(port: ServicePort, portals: readonly Portal[], config: PortalPlanConfig) {
    this.port = port;
    this.#portals = portals;
    this.#config = config;
    this.lanes = lanesOf(portals);
    const all = this.rulesFor(0);
    this.closed = all.filter((one) => !isOpen(one));
    this.hasOpenPorts = this.closed.length < all.length;
  }

  /** @param first of the proxy's ports. @param text the name of the service port that they are for. */
  rulesFor(first: number, text = this.port.name.text): readonly SharedRule[] {
    const name = { ...this.port.name, text };
    return planPortalRules({ ...this.port, name }, this.#portals, portsFrom(first, this.lanes), this.#config).shared;
  }

  openFor(first: number, text: string): readonly SharedRule[] {
    return this.rulesFor(first, text).filter(isOpen);
  }
}
