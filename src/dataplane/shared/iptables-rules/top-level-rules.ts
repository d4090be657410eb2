/** The chains that exist once, and the rules of built-in chains that lead there. Reference iptables.md §2, §4. */
import type { IptablesTable } from "../../../kernel/iptables/iptables.ts";
import type { ChainName, Rule, RuleMatch } from "../../../kernel/iptables/rule.ts";
import { CHAINS } from "./chain-names.ts";
import type { JumpRule } from "./rules-plan.ts";

const SERVICE_PORTALS = "kubernetes service portals";
const EXTERNAL_PORTALS = "kubernetes externally-visible service portals";
const FORWARDING = "kubernetes forwarding rules";
const LOAD_BALANCER_FIREWALL = "kubernetes load balancer firewall";

function jump(
  table: IptablesTable,
  source: string,
  target: ChainName,
  comment: string | undefined,
  onlyNew: boolean,
): JumpRule {
  const matches: RuleMatch[] = [];
  if (onlyNew) matches.push({ kind: "conntrack-state", states: ["NEW"] });
  if (comment !== undefined) matches.push({ kind: "comment", text: comment });
  const rule: Rule = { chain: source, matches, target: { kind: "jump", chain: target } };
  return { table, rule, target, isShared: target === CHAINS.firewall };
}

/** In the order in which they are ensured: each goes to the head, so the last ends up first (iptables.md §2). */
export const JUMP_RULES: readonly JumpRule[] = [
  jump("filter", "INPUT", CHAINS.externalServices, EXTERNAL_PORTALS, true),
  jump("filter", "FORWARD", CHAINS.externalServices, EXTERNAL_PORTALS, true),
  jump("filter", "INPUT", CHAINS.nodePorts, "kubernetes health check service ports", false),
  jump("filter", "FORWARD", CHAINS.services, SERVICE_PORTALS, true),
  jump("filter", "OUTPUT", CHAINS.services, SERVICE_PORTALS, true),
  jump("filter", "FORWARD", CHAINS.forward, FORWARDING, false),
  jump("filter", "INPUT", CHAINS.proxyFirewall, LOAD_BALANCER_FIREWALL, true),
  jump("filter", "OUTPUT", CHAINS.proxyFirewall, LOAD_BALANCER_FIREWALL, true),
  jump("filter", "FORWARD", CHAINS.proxyFirewall, LOAD_BALANCER_FIREWALL, true),
  jump("nat", "OUTPUT", CHAINS.services, SERVICE_PORTALS, false),
  jump("nat", "PREROUTING", CHAINS.services, SERVICE_PORTALS, false),
  jump("nat", "POSTROUTING", CHAINS.postrouting, "kubernetes postrouting rules", false),
  jump("filter", "INPUT", CHAINS.firewall, undefined, false),
  jump("filter", "OUTPUT", CHAINS.firewall, undefined, false),
];

/** Chains that every payload of a full sync declares, in order, per table (iptables.md §4). */
export const TOP_LEVEL_CHAINS = {
  filter: [CHAINS.services, CHAINS.externalServices, CHAINS.forward, CHAINS.nodePorts, CHAINS.proxyFirewall],
  nat: [CHAINS.services, CHAINS.nodePorts, CHAINS.postrouting, CHAINS.markMasquerade],
} as const satisfies Record<string, readonly ChainName[]>;
