/** The chains of no service port, and the jumps to them from built-in chains. Reference iptables.md §2, §4. */
import type { IptablesTable } from "../../../kernel/iptables/iptables.ts";
import type { ChainName, Rule, RuleMatch } from "../../../kernel/iptables/rule.ts";
import type { LocalTrafficDetector } from "../../../model/local-traffic-detector.ts";
import { CHAINS } from "./chain-names.ts";
import type { JumpRule } from "./rules-plan.ts";

export const SERVICE_PORTALS = "kubernetes service portals";
const EXTERNAL_PORTALS = "kubernetes externally-visible service portals";
export const FORWARDING = "kubernetes forwarding rules";
const LOAD_BALANCER_FIREWALL = "kubernetes load balancer firewall";

export function jump(
  table: IptablesTable,
  source: string,
  target: ChainName,
  comment: string | undefined,
  onlyNew = false,
): JumpRule {
  const matches: RuleMatch[] = [];
  if (onlyNew) matches.push({ kind: "conntrack-state", states: ["NEW"] });
  if (comment !== undefined) matches.push({ kind: "comment", text: comment });
  const rule: Rule = { chain: source, matches, target: { kind: "jump", chain: target } };
  return { table, rule, target, isShared: target === CHAINS.firewall };
}

/** In the order of insertion: each goes to the head, so the last one ends up first (iptables.md §2). */
export const JUMP_RULES: readonly JumpRule[] = [
  jump("filter", "INPUT", CHAINS.externalServices, EXTERNAL_PORTALS, true),
  jump("filter", "FORWARD", CHAINS.externalServices, EXTERNAL_PORTALS, true),
  jump("filter", "INPUT", CHAINS.nodePorts, "kubernetes health check service ports"),
  jump("filter", "FORWARD", CHAINS.services, SERVICE_PORTALS, true),
  jump("filter", "OUTPUT", CHAINS.services, SERVICE_PORTALS, true),
  jump("filter", "FORWARD", CHAINS.forward, FORWARDING),
  jump("filter", "INPUT", CHAINS.proxyFirewall, LOAD_BALANCER_FIREWALL, true),
  jump("filter", "OUTPUT", CHAINS.proxyFirewall, LOAD_BALANCER_FIREWALL, true),
  jump("filter", "FORWARD", CHAINS.proxyFirewall, LOAD_BALANCER_FIREWALL, true),
  jump("nat", "OUTPUT", CHAINS.services, SERVICE_PORTALS),
  jump("nat", "PREROUTING", CHAINS.services, SERVICE_PORTALS),
  jump("nat", "POSTROUTING", CHAINS.postrouting, "kubernetes postrouting rules"),
  jump("filter", "INPUT", CHAINS.firewall, undefined),
  jump("filter", "OUTPUT", CHAINS.firewall, undefined),
];

/** Chains that every payload of a full sync declares, in order, per table (iptables.md §4). */
export const TOP_LEVEL_CHAINS = {
  filter: [CHAINS.services, CHAINS.externalServices, CHAINS.forward, CHAINS.nodePorts, CHAINS.proxyFirewall],
  nat: [CHAINS.services, CHAINS.nodePorts, CHAINS.postrouting, CHAINS.markMasquerade],
} as const satisfies Record<string, readonly ChainName[]>;

/** Accepts forwarded packets of Services if the policy of FORWARD is DROP. @param mark the masquerade mark. */
export function forwardRules(mark: number): Rule[] {
  const accepting = (text: string, match: RuleMatch): Rule => ({
    chain: CHAINS.forward,
    matches: [{ kind: "comment", text }, match],
    target: { kind: "accept" },
  });
  return [
    accepting(FORWARDING, { kind: "mark", value: mark, mask: mark }),
    accepting("kubernetes forwarding conntrack rule", {
      kind: "conntrack-state",
      states: ["RELATED", "ESTABLISHED"],
    }),
  ];
}

/** Clears the mark before masquerading, so that a packet that passes again is not masqueraded twice. */
export function masqueradeRules(mark: number): Rule[] {
  const chain = CHAINS.postrouting;
  return [
    { chain, matches: [{ kind: "mark", value: mark, mask: mark, negate: true }], target: { kind: "return" } },
    { chain, matches: [], target: { kind: "mark", operation: "xor", value: mark } },
    {
      chain,
      matches: [{ kind: "comment", text: "kubernetes service traffic requiring SNAT" }],
      target: { kind: "masquerade", randomFully: true },
    },
    { chain: CHAINS.markMasquerade, matches: [], target: { kind: "mark", operation: "or", value: mark } },
  ];
}

/** Matches packets of local pods, or with `negate` all others; undefined if the node cannot tell (node.md §10). */
export function localPods(detector: LocalTrafficDetector, negate: boolean): RuleMatch | undefined {
  switch (detector.kind) {
    case "none":
      return undefined;
    case "cidr":
      return { kind: "source", address: detector.cidr, negate };
    case "interface":
      return { kind: "in-interface", name: detector.name, negate };
    case "interface-prefix":
      return { kind: "in-interface", name: `${detector.prefix}+`, negate };
  }
}
