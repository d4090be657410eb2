/**
 * The tables of the userspace mode for `trace`: rules are spelled when they are looked at, and those of service ports that no packet
 * in question can meet are counted.
 */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import type { SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { countsIn, type InTable } from "../shared/iptables-rules/counted-rules.ts";
import {
  jumpRules,
  jumpTargets,
  savedTables,
  type TableContent,
  type UnplannedRules,
} from "../shared/iptables-rules/saved-form.ts";
import { countedPorts, nextPorts, planConfigOf, portalsIn } from "./cluster-plan.ts";
import {
  type LanePorts,
  PORTAL_CHAINS,
  PORTAL_JUMPS,
  PORTAL_STATIC_PLAN,
  type PortalPlanConfig,
  planPortalRules,
} from "./plan-portal-rules.ts";
import type { Portal } from "./portals.ts";
import { isRelayed } from "./service-relays.ts";

type Rules = readonly InTable<Rule | UnplannedRules>[];

/** @returns undefined where there are no rules. @throws Error when the configuration does not let the proxy listen. */
export function plannedTables(node: OfflineNode, config: KubeProxyConfig): ReadonlyMap<string, SavedTable> | undefined {
  if (config.userspace.rules !== "iptables") return undefined;
  const shared = sharedRules(node, config);
  const content = (table: "filter" | "nat", chains: readonly string[]): TableContent<Rule | UnplannedRules> => ({
    chains: [...chains, ...jumpTargets(table, PORTAL_JUMPS)],
    rules: [
      ...jumpRules(table, PORTAL_JUMPS),
      ...shared.flatMap((rules) => rules.filter((one) => one.table === table).map(({ rule }) => rule)),
    ],
  });
  const { filterChains, natChains } = PORTAL_STATIC_PLAN;
  return savedTables({ filter: content("filter", filterChains), nat: content("nat", natChains) }, node.family);
}

/** By service port, in the order of the keys, in which the proxy's ports are counted as well. */
function sharedRules(node: OfflineNode, config: KubeProxyConfig): Rules[] {
  const { state, others = [] } = node;
  const planConfig = planConfigOf(node, config);
  const freePorts = countedPorts(config.userspace.portRange);
  const otherOf = new Map(others.map((other) => [other.key, other]));
  const known = new Map<string, StandIn>();
  const found: Rules[] = [];
  for (const key of [...state.services.keys(), ...otherOf.keys()].sort()) {
    const other = otherOf.get(key);
    const like = other?.like ?? key;
    const port = state.services.get(like);
    if (port === undefined || !isRelayed(port.name)) continue;
    let standIn = known.get(like);
    if (standIn === undefined) {
      standIn = new StandIn(port, portalsIn(node, port), planConfig);
      known.set(like, standIn);
    }
    const proxyPorts = nextPorts(freePorts, standIn.portals);
    if (proxyPorts === undefined) continue;
    found.push(other === undefined ? standIn.rulesFor(proxyPorts) : standIn.countedFor(proxyPorts, other.text));
  }
  return found;
}

/** A service port, in place of all that have as many rules. */
class StandIn {
  readonly portals: readonly Portal[];
  readonly #port: ServicePort;
  readonly #config: PortalPlanConfig;
  #counted: Rules | undefined;
  #hasOpenPorts = false;

  constructor(port: ServicePort, portals: readonly Portal[], config: PortalPlanConfig) {
    this.#port = port;
    this.portals = portals;
    this.#config = config;
  }

  /** @param text the name of the service port that they are for. */
  rulesFor(proxyPorts: LanePorts, text = this.#port.name.text) {
    const name = { ...this.#port.name, text };
    return planPortalRules({ ...this.#port, name }, this.portals, proxyPorts, this.#config).shared;
  }

  /** Rules that let in packets to the proxy's own ports name nothing else, so they are rules even here. */
  countedFor(proxyPorts: LanePorts, text: string): Rules {
    if (this.#counted !== undefined && !this.#hasOpenPorts) return this.#counted;
    const all = this.rulesFor(proxyPorts, text);
    const open = all.filter(({ rule }) => rule.chain === PORTAL_CHAINS.nodePortNonLocal);
    this.#hasOpenPorts = open.length > 0;
    this.#counted ??= countsIn(all.filter((one) => !open.includes(one)));
    return [...this.#counted, ...open];
  }
}
