/** The sockets and rules of the userspace mode for a cluster on one node, planned without a kernel. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { PlannedRelay, PlannedRelays } from "../../contract/relay-chain.ts";
import { type ModeRenderer, planAsData, toolName } from "../../contract/rendering.ts";
import type { TableTexts } from "../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import { ruleSpec } from "../../kernel/iptables/rule-text.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../model/service-port-routing.ts";
import {
  cidrContains,
  type IpAddress,
  isLoopback,
  isUnspecified,
  joinHostPort,
  unspecifiedAddress,
} from "../../net/ip.ts";
import { parsePortRange } from "../../net/port-range.ts";
import { protocolName } from "../../net/protocol.ts";
import { withCounts } from "../shared/iptables-rules/counted-rules.ts";
import { fullPayload } from "../shared/iptables-rules/full-payload.ts";
import { spell } from "../shared/iptables-rules/owner-rules.ts";
import { textsOf } from "../shared/iptables-rules/payload.ts";
import {
  NOTHING_STATIC,
  type ServicePortPlan,
  type SharedRule,
  type StaticPlan,
} from "../shared/iptables-rules/rules-plan.ts";
import { savedText, tableContents, tableTexts } from "../shared/iptables-rules/saved-form.ts";
import { listenAddressOf } from "./listen-address.ts";
import {
  type LanePorts,
  PORTAL_CHAINS,
  PORTAL_JUMPS,
  PORTAL_STATIC_PLAN,
  type PortalPlanConfig,
  planPortalRules,
} from "./plan-portal-rules.ts";
import { isOpen, isServed, LANES, type Lane, laneOf, lanesOf, type Portal, portalsOf } from "./portals.ts";
import { isRelayed } from "./service-relays.ts";

interface PlannedPort {
  readonly port: ServicePort;
  readonly portals: readonly Portal[];
  /** By lane; undefined without rules. */
  readonly proxyPorts: LanePorts | undefined;
  readonly plan: ServicePortPlan | undefined;
}

/** A planned cluster, by key of the service ports. */
interface UserspacePlan {
  readonly node: OfflineNode;
  readonly hasRules: boolean;
  /** Keys of all service ports of the node, in order. */
  readonly keys: readonly string[];
  readonly ports: readonly PlannedPort[];
  /** Why service ports are left out, by name. */
  readonly leftOut: ReadonlyMap<string, string>;
  /** Rules that admit packets to the proxy's own ports and name no Service; by key of the node's other service ports. */
  readonly opened: ReadonlyMap<string, readonly SharedRule[]>;
  readonly extent: "whole" | "part";
}

/** Plans a whole cluster. @throws Error if the configuration does not allow the proxy to listen. */
export function planUserspace(node: OfflineNode, config: KubeProxyConfig): UserspacePlan {
  const hasRules = config.userspace.rules === "iptables";
  const planConfig = planConfigOf(node, config);
  const { services } = node.state;
  const otherOf = new Map(node.others?.map((other) => [other.key, other]));
  const takePorts = countedPorts(config.userspace.portRange);
  const known = new Map<string, readonly Portal[]>();
  const keys = [...services.keys(), ...otherOf.keys()].sort();
  const leftOut = new Map<string, string>();
  const opened = new Map<string, readonly SharedRule[]>();
  const ports: PlannedPort[] = [];
  // Other service ports use ports of the proxy, too, counted in the order of the keys.
  for (const key of keys) {
    const other = otherOf.get(key);
    const port = services.get(other?.like ?? key);
    if (port === undefined) continue;
    if (!isRelayed(port.name)) {
      if (other === undefined) leftOut.set(port.name.text, "SCTP is not supported for user space proxy");
      continue;
    }
    const portals = known.get(port.name.key) ?? portalsOf(port, routingIn(node, port), node.nodePortIPs);
    known.set(port.name.key, portals);
    const proxyPorts = hasRules ? takePorts(lanesOf(portals)) : undefined;
    if (other !== undefined) {
      if (proxyPorts === undefined || port.nodePort === 0) continue;
      const named = { ...port, name: { ...port.name, text: other.text } };
      const { shared } = planPortalRules(named, portals, proxyPorts, planConfig);
      opened.set(
        key,
        shared.filter(({ rule }) => rule.chain === PORTAL_CHAINS.nodePortNonLocal),
      );
    } else if (hasRules && proxyPorts === undefined) {
      leftOut.set(port.name.text, "there are no remaining ports left to allocate in the accepted range");
    } else {
      const plan = proxyPorts && planPortalRules(port, portals, proxyPorts, planConfig);
      ports.push({ port, portals, proxyPorts, plan });
    }
  }
  return { node, hasRules, keys, ports, leftOut, opened, extent: "whole" };
}

/** The part of a plan that belongs to one Service. @param service `namespace/name` */
export function planOfService(plan: UserspacePlan, service: string): UserspacePlan {
  const ports = plan.ports.filter(({ port }) => port.name.service === service);
  const names = new Set(
    [...plan.node.state.services.values()].filter(({ name }) => name.service === service).map(({ name }) => name.text),
  );
  return { ...plan, ports, leftOut: new Map([...plan.leftOut].filter(([name]) => names.has(name))), extent: "part" };
}

/** What the rules depend on besides service ports. @throws Error if the configuration does not allow the proxy to listen. */
export function planConfigOf(
  { family, nodeIP, detector }: OfflineNode,
  { bindAddress }: KubeProxyConfig,
): PortalPlanConfig {
  const listenAddress = listenAddressOf(bindAddress, family, isLoopback(nodeIP) ? undefined : nodeIP);
  return { listenAddress, hostAddress: nodeIP, knowsBridgePorts: true, detector };
}

function routingIn({ name, zone, state }: OfflineNode, port: ServicePort): ServicePortRouting {
  return routeServicePort(port, state.endpoints.get(port.name.key) ?? [], { nodeName: name, zone });
}

/** Where the proxy listens for a service port without rules: at the addresses that this host has. */
export function listenersOf({ node }: UserspacePlan, { port, portals }: PlannedPort): string[] {
  const here = new Set(node.hostAddresses);
  const places = portals
    .filter(isOpen)
    .filter(({ address }) => address === undefined || here.has(address))
    .map(({ address, port: number }) => `${address ?? unspecifiedAddress(node.family)} ${number}`);
  return [...new Set(places)].map((place) => `${port.protocol} ${place}`);
}

function fixedOf({ extent }: UserspacePlan): StaticPlan {
  return extent === "whole" ? PORTAL_STATIC_PLAN : NOTHING_STATIC;
}

/** The output of `iptables-save` after a full sync; undefined without rules. */
function savedInput(plan: UserspacePlan): string | undefined {
  if (!plan.hasRules) return undefined;
  const jumps = plan.extent === "whole" ? PORTAL_JUMPS : [];
  const ports = plan.ports.flatMap((one) => one.plan ?? []);
  return savedText(tableContents({ jumps, fixed: fixedOf(plan), ports }), plan.node.family, plan.extent);
}

/** The input of `iptables-restore` that a full sync sends; without rules, the sockets as comments. */
function restoreInput(plan: UserspacePlan): string {
  const notes = [...plan.leftOut].map(([name, reason]) => `# ${name}: ${reason}\n`);
  if (!plan.hasRules) {
    for (const one of plan.ports) {
      for (const place of listenersOf(plan, one)) notes.push(`# listens on ${place} for ${one.port.name.text}\n`);
    }
    return notes.join("");
  }
  const spelled = plan.ports.flatMap(({ port, plan: rules }) =>
    rules === undefined ? [] : [[port.name.key, spell(rules)] as const],
  );
  const { transactions } = fullPayload({ plan: fixedOf(plan), ports: spelled });
  return [...notes, ...textsOf(transactions)].join("");
}

/** The plan as plain data, for programs. Keys and lists have a fixed order. */
function planData(plan: UserspacePlan) {
  const data = (rule: Rule) => ({ ...rule, text: ruleSpec(rule) });
  return {
    ...(plan.hasRules &&
      plan.extent === "whole" && {
        jumps: PORTAL_JUMPS.map(({ table, rule, position }) => ({ table, position, ...data(rule) })),
        chains: { filter: PORTAL_STATIC_PLAN.filterChains, nat: PORTAL_STATIC_PLAN.natChains },
      }),
    servicePorts: plan.ports.map((one) => ({
      name: one.port.name.text,
      protocol: one.port.protocol,
      portals: one.portals.map(({ kind, address, port, sources }) => ({ kind, address, port, sources })),
      ...(one.plan === undefined
        ? { listens: listenersOf(plan, one) }
        : { proxyPorts: one.proxyPorts, rules: one.plan.shared.map(({ table, rule }) => ({ table, ...data(rule) })) }),
    })),
    leftOut: Object.fromEntries(plan.leftOut),
  };
}

export type UserspacePlanData = ReturnType<typeof planData>;

/** The first counted port without a port range. */
const FIRST_PORT = 20_000;
const LAST_PORT = 65_535;

/**
 * The proxy's own ports of a plan. A daemon takes any free port; here they are counted, so that plans can be compared.
 * @param portRange of the configuration. @returns a function that takes the next port for each lane; undefined: too few are left.
 */
function countedPorts(portRange: string): (lanes: ReadonlySet<Lane>) => LanePorts | undefined {
  const parsed = parsePortRange(portRange);
  const isSet = parsed.ok && parsed.range.first !== 0;
  const { first, last } = isSet ? parsed.range : { first: FIRST_PORT, last: LAST_PORT };
  let next = first;
  return (lanes) => {
    const ports: LanePorts = Object.fromEntries(Array.from(lanes, (lane) => [lane, next++]));
    return lanes.size > 0 && next - 1 > last ? undefined : ports;
  };
}

export const renderUserspace: ModeRenderer<UserspacePlanData> = async (node, request) => {
  const { config, form, service } = request;
  if (form === "tables") {
    return { kind: "dump", dump: { kind: "iptables-tables", tables: plannedTables(node, config).tables } };
  }
  const whole = planUserspace(node, config);
  const plan = service === undefined ? whole : planOfService(whole, service);
  switch (form) {
    case "json":
      return planAsData(node, request, planData(plan));
    case "iptables-save": {
      const text = savedInput(plan);
      if (text === undefined) throw new Error("--output iptables-save: userspace.rules is none, so there are no rules");
      return { kind: "text", text, tool: toolName(node, "save") };
    }
    default:
      return { kind: "text", text: restoreInput(plan), tool: plan.hasRules ? toolName(node, "restore") : node.family };
  }
};

interface PlannedTables {
  readonly tables: TableTexts;
  readonly relays: PlannedRelays;
}

/** Without rules, the tables are empty. @throws Error if the configuration does not allow the proxy to listen. */
export function plannedTables(node: OfflineNode, config: KubeProxyConfig): PlannedTables {
  const { hasRules, keys, ports, opened } = planUserspace(node, config);
  const { listenAddress } = planConfigOf(node, config);
  const relays = new Map<string, PlannedRelay>();
  for (const { port, portals, proxyPorts } of ports) {
    const protocol = protocolName(port.protocol);
    const routing = routingIn(node, port);
    for (const lane of LANES) {
      const proxyPort = proxyPorts?.[lane];
      if (proxyPort === undefined) continue;
      const place = isUnspecified(listenAddress) ? String(proxyPort) : joinHostPort(listenAddress, proxyPort);
      relays.set(`${protocol} ${place}`, { port, looksAtClient: false, endpointsFor: () => routing[lane] });
    }
    if (hasRules) continue;
    // The proxy listens at the addresses themselves and checks its clients. Of two portals at one place, an open one counts.
    for (const portal of portals.toSorted((a, b) => Number(isOpen(b)) - Number(isOpen(a)))) {
      const { address, port: number, sources } = portal;
      const place = `${protocol} ${address === undefined ? number : joinHostPort(address, number)}`;
      if (relays.has(place)) continue;
      relays.set(place, {
        port,
        looksAtClient: true,
        endpointsFor({ source, inInterface }) {
          const isIn = sources.length === 0 || sources.some((range) => cidrContains(range, source));
          const lane = laneOf(portal, inInterface === "" || isPod(node, source));
          return isIn && isServed(portal, lane) ? routing[lane] : [];
        },
      });
    }
  }
  if (!hasRules) return { tables: new Map(), relays };
  const shared = withCounts(
    new Map(ports.map(({ port, plan }) => [port.name.key, plan?.shared ?? []])),
    node.others ?? [],
    keys,
    opened,
  );
  const contents = tableContents({
    jumps: PORTAL_JUMPS,
    fixed: PORTAL_STATIC_PLAN,
    ports: [],
    shared,
  });
  return { tables: tableTexts(contents, node.family), relays };
}

const isPod = ({ detector }: OfflineNode, address: IpAddress): boolean =>
  detector.kind === "cidr" && cidrContains(detector.cidr, address);
