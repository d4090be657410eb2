/**
 * The rules that belong to no Service, except the jumps from the built-in chains: masquerading, forwarding and the jump
 * to the node ports. Reference iptables.md §2, §4, §5.
 */
import type { Rule, RuleMatch } from "../../kernel/iptables/rule.ts";
import { isLoopback, LOOPBACK } from "../../net/ip.ts";
import { CHAINS } from "../shared/iptables-rules/chain-names.ts";
import type { StaticPlan } from "../shared/iptables-rules/rules-plan.ts";
import { forwardRules, masqueradeRules, TOP_LEVEL_CHAINS } from "../shared/iptables-rules/top-level-rules.ts";
import { COUNTERS, type PlanConfig, type PlanFacts } from "./plan-options.ts";

const NODE_PORTS_COMMENT = "kubernetes service nodeports; NOTE: this must be the last rule in this chain";

export function planStatic(config: PlanConfig, facts: PlanFacts): StaticPlan {
  const filterHead = config.localhostNodePorts ? [martianRule()] : [];
  return {
    filterChains: config.localhostNodePorts ? [...TOP_LEVEL_CHAINS.filter, CHAINS.firewall] : TOP_LEVEL_CHAINS.filter,
    natChains: TOP_LEVEL_CHAINS.nat,
    filterHead,
    filterTail: [...invalidRules(config, facts), ...forwardRules(config.masqueradeMark)],
    natHead: masqueradeRules(config.masqueradeMark),
    natTail: nodePortJumps(config, facts),
  };
}

/** Drops packets to 127/8 from elsewhere, unless a node port redirected them (iptables.md §5.3). */
function martianRule(): Rule {
  return {
    chain: CHAINS.firewall,
    matches: [
      { kind: "comment", text: "block incoming localnet connections" },
      { kind: "destination", address: LOOPBACK.IPv4 },
      { kind: "source", address: LOOPBACK.IPv4, negate: true },
      { kind: "conntrack-state", states: ["RELATED", "ESTABLISHED", "DNAT"], negate: true },
    ],
    target: { kind: "drop" },
  };
}

function invalidRules({ conntrackLiberal }: PlanConfig, { counters }: PlanFacts): Rule[] {
  if (conntrackLiberal) return [];
  const matches: RuleMatch[] = [{ kind: "conntrack-state", states: ["INVALID"] }];
  if (counters.ctStateInvalid) matches.push({ kind: "nfacct", counter: COUNTERS.ctStateInvalid });
  return [{ chain: CHAINS.forward, matches, target: { kind: "drop" } }];
}

function nodePortJumps(config: PlanConfig, facts: PlanFacts): Rule[] {
  const comment: RuleMatch = { kind: "comment", text: NODE_PORTS_COMMENT };
  const rule = (matches: readonly RuleMatch[]): Rule => ({
    chain: CHAINS.services,
    matches: [comment, ...matches],
    target: { kind: "jump", chain: CHAINS.nodePorts },
  });
  const destinations = facts.nodePortIPs;
  if (destinations.kind === "ips") {
    return destinations.ips
      .filter((ip) => config.localhostNodePorts || !isLoopback(ip))
      .map((ip) => rule([{ kind: "destination", address: ip }]));
  }
  const local: RuleMatch = { kind: "address-type", side: "destination", type: "LOCAL" };
  if (config.localhostNodePorts) return [rule([local])];
  return [rule([local, { kind: "destination", address: LOOPBACK[config.family], negate: true }])];
}
