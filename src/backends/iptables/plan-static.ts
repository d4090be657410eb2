/**
 * The rules that belong to no service: jumps from the built-in chains, masquerading, forwarding and the way to the node
 * ports. Reference iptables.md §2, §4, §5. Pure.
 */
import type { IptablesTable, RulePosition } from "../../kernel/iptables/iptables.ts";
import type { ChainName, Rule, RuleMatch } from "../../kernel/iptables/rule.ts";
import { type Cidr, isLoopback } from "../../net/ip.ts";
import { CHAINS } from "./chain-names.ts";
import { COUNTERS, type PlanConfig, type PlanFacts } from "./plan-options.ts";

const LOCALHOST_V4 = "127.0.0.0/8" as Cidr;
const LOCALHOST_V6 = "::1/128" as Cidr;
const NODE_PORTS_COMMENT = "kubernetes service nodeports; NOTE: this must be the last rule in this chain";
const SERVICE_PORTALS = "kubernetes service portals";
const EXTERNAL_PORTALS = "kubernetes externally-visible service portals";
const FORWARDING = "kubernetes forwarding rules";
const LOAD_BALANCER_FIREWALL = "kubernetes load balancer firewall";

/** A rule in a built-in chain that leads into one of ours. `isShared` ones belong to the kubelet too and outlive cleanup. */
export interface JumpRule {
  readonly table: IptablesTable;
  readonly rule: Rule;
  readonly target: ChainName;
  readonly isShared: boolean;
  /** @default "head" */
  readonly position?: RulePosition;
}

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

/** The static part of a full payload, by place. */
export interface StaticPlan {
  readonly filterChains: readonly ChainName[];
  readonly natChains: readonly ChainName[];
  /** Before the rules of services. */
  readonly filterHead: readonly Rule[];
  /** After the rules of services. */
  readonly filterTail: readonly Rule[];
  readonly natHead: readonly Rule[];
  /** Last of all: the jumps to the node ports. */
  readonly natTail: readonly Rule[];
}

/** Plans the static rules. Pure. */
export function planStatic(config: PlanConfig, facts: PlanFacts): StaticPlan {
  const filterHead = config.localhostNodePorts ? [martianRule()] : [];
  return {
    filterChains: config.localhostNodePorts ? [...TOP_LEVEL_CHAINS.filter, CHAINS.firewall] : TOP_LEVEL_CHAINS.filter,
    natChains: TOP_LEVEL_CHAINS.nat,
    filterHead,
    filterTail: forwardRules(config, facts),
    natHead: masqueradeRules(config),
    natTail: nodePortJumps(config, facts),
  };
}

/** Packets to 127/8 from elsewhere are dropped unless a node port brought them there (iptables.md §5.3). */
function martianRule(): Rule {
  return {
    chain: CHAINS.firewall,
    matches: [
      { kind: "comment", text: "block incoming localnet connections" },
      { kind: "destination", address: LOCALHOST_V4 },
      { kind: "source", address: LOCALHOST_V4, negate: true },
      { kind: "conntrack-state", states: ["RELATED", "ESTABLISHED", "DNAT"], negate: true },
    ],
    target: { kind: "drop" },
  };
}

function forwardRules(config: PlanConfig, facts: PlanFacts): Rule[] {
  const chain = CHAINS.forward;
  const mark = config.masqueradeMark;
  const rules: Rule[] = [];
  if (!config.conntrackLiberal) {
    const matches: RuleMatch[] = [{ kind: "conntrack-state", states: ["INVALID"] }];
    if (facts.counters.ctStateInvalid) matches.push({ kind: "nfacct", counter: COUNTERS.ctStateInvalid });
    rules.push({ chain, matches, target: { kind: "drop" } });
  }
  rules.push(
    {
      chain,
      matches: [
        { kind: "comment", text: FORWARDING },
        { kind: "mark", value: mark, mask: mark },
      ],
      target: { kind: "accept" },
    },
    {
      chain,
      matches: [
        { kind: "comment", text: "kubernetes forwarding conntrack rule" },
        { kind: "conntrack-state", states: ["RELATED", "ESTABLISHED"] },
      ],
      target: { kind: "accept" },
    },
  );
  return rules;
}

/** The mark is cleared before masquerading, so that a packet that comes round again is not masqueraded twice. */
function masqueradeRules(config: PlanConfig): Rule[] {
  const mark = config.masqueradeMark;
  const chain = CHAINS.postrouting;
  return [
    { chain, matches: [{ kind: "mark", value: mark, mask: mark, negate: true }], target: { kind: "return" } },
    { chain, matches: [], target: { kind: "mark", operation: "xor", value: mark } },
    {
      chain,
      matches: [{ kind: "comment", text: "kubernetes service traffic requiring SNAT" }],
      target: { kind: "masquerade", randomFully: config.hasRandomFully },
    },
    { chain: CHAINS.markMasquerade, matches: [], target: { kind: "mark", operation: "or", value: mark } },
  ];
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
  if (config.family === "IPv6") return [rule([local, { kind: "destination", address: LOCALHOST_V6, negate: true }])];
  if (config.localhostNodePorts) return [rule([local])];
  return [rule([local, { kind: "destination", address: LOCALHOST_V4, negate: true }])];
}
