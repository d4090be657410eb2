/**
 * The iptables rules around the sets: their number does not depend on the number of Services. Reference ipvs.md §7.
 */
import type { IptablesTable } from "../../kernel/iptables/iptables.ts";
import type { ChainName, Rule, RuleMatch, RuleTarget, SetDirection } from "../../kernel/iptables/rule.ts";
import { type IpFamily, LOOPBACK } from "../../net/ip.ts";
import type { JumpRule } from "../shared/iptables-rules/rules-plan.ts";
import {
  FORWARDING,
  forwardRules,
  jump,
  localPods,
  masqueradeRules,
  SERVICE_PORTALS,
} from "../shared/iptables-rules/top-level-rules.ts";
import { CHAINS, SETS, type SetId, setName } from "./names.ts";
import type { DeniedVip, PlanConfig } from "./plan-service-port.ts";

const FIREWALL = "kube-proxy firewall rules";
const ACCESS_FILTER = "kubernetes ipvs access filter";

/** In the order of insertion: each is inserted at the head, so the last one ends up first. */
export const JUMP_RULES: readonly JumpRule[] = [
  jump("nat", "OUTPUT", CHAINS.services, SERVICE_PORTALS),
  jump("nat", "PREROUTING", CHAINS.services, SERVICE_PORTALS),
  jump("nat", "POSTROUTING", CHAINS.postrouting, "kubernetes postrouting rules"),
  jump("filter", "FORWARD", CHAINS.forward, FORWARDING),
  jump("filter", "INPUT", CHAINS.nodePort, "kubernetes health check rules"),
  jump("filter", "INPUT", CHAINS.proxyFirewall, FIREWALL),
  jump("filter", "FORWARD", CHAINS.proxyFirewall, FIREWALL),
  jump("filter", "INPUT", CHAINS.ipvsFilter, ACCESS_FILTER),
  jump("filter", "OUTPUT", CHAINS.ipvsOutFilter, ACCESS_FILTER),
];

/** The mode's chains, in the order of their declaration. */
export const CHAINS_OF = {
  nat: [CHAINS.services, CHAINS.postrouting, CHAINS.nodePort, CHAINS.loadBalancer, CHAINS.markMasquerade],
  filter: [
    CHAINS.forward,
    CHAINS.nodePort,
    CHAINS.proxyFirewall,
    CHAINS.sourceRangesFirewall,
    CHAINS.ipvsFilter,
    CHAINS.ipvsOutFilter,
  ],
} as const satisfies Partial<Record<IptablesTable, readonly ChainName[]>>;

/** What the rules depend on besides the configuration. */
export interface RulesInput {
  /** Sets with wanted entries: rules that need entries are left out for the others. */
  readonly filled: ReadonlySet<SetId>;
  /** Sets that cannot be created: no rule may name them. */
  readonly unusable: ReadonlySet<SetId>;
  /** In the order of their rules. */
  readonly deniedVips: readonly DeniedVip[];
}

/** The rules of both tables, in order. */
export interface RulesPlan {
  readonly nat: readonly Rule[];
  readonly filter: readonly Rule[];
}

export function planRules(config: PlanConfig, input: RulesInput): RulesPlan {
  const draft = new Draft(config.family, input);
  return { nat: natRules(draft, config), filter: filterRules(draft, config, input.deniedVips) };
}

/** Decides which sets rules may name. */
class Draft {
  readonly #family: IpFamily;
  readonly #input: RulesInput;

  constructor(family: IpFamily, input: RulesInput) {
    this.#family = family;
    this.#input = input;
  }

  isFilled(id: SetId): boolean {
    return this.#input.filled.has(id) && this.isUsable(id);
  }

  isUsable(id: SetId): boolean {
    return !this.#input.unusable.has(id);
  }

  matchOf(id: SetId, ...directions: readonly SetDirection[]): RuleMatch {
    return { kind: "set", name: setName(id, this.#family), directions };
  }
}

const ACCEPT: RuleTarget = { kind: "accept" };
const RETURN: RuleTarget = { kind: "return" };
const MARK: RuleTarget = { kind: "jump", chain: CHAINS.markMasquerade };
const to = (chain: ChainName): RuleTarget => ({ kind: "jump", chain });
const commentOf = (id: SetId): RuleMatch => ({ kind: "comment", text: SETS[id].comment });
const TO_LOCAL: RuleMatch = { kind: "address-type", side: "destination", type: "LOCAL" };

type Row = readonly [chain: ChainName, set: SetId, directions: readonly SetDirection[], target: RuleTarget];

/** Rules of the form `comment, set → target`, for sets that are filled. */
function commented(draft: Draft, rows: readonly Row[], first: readonly RuleMatch[] = []): Rule[] {
  const filled = rows.filter(([, set]) => draft.isFilled(set));
  return filled.map(([chain, set, directions, target]) => ({
    chain,
    matches: [...first, commentOf(set), draft.matchOf(set, ...directions)],
    target,
  }));
}

const BOTH: readonly SetDirection[] = ["dst", "dst"];

function natRules(draft: Draft, config: PlanConfig): Rule[] {
  const { services, postrouting, loadBalancer } = CHAINS;
  return [
    { chain: services, matches: [{ kind: "source", address: LOOPBACK[config.family] }], target: RETURN },
    ...commented(draft, [
      [postrouting, "loopBack", ["dst", "dst", "src"], { kind: "masquerade", randomFully: false }],
      [services, "loadBalancer", BOTH, to(loadBalancer)],
      [loadBalancer, "loadBalancerLocal", BOTH, RETURN],
    ]),
    ...nodePortRules(draft),
    ...clusterIPRule(draft, config),
    ...externalIPRules(draft),
    { chain: services, matches: [TO_LOCAL], target: to(CHAINS.nodePort) },
    { chain: loadBalancer, matches: [], target: MARK },
    ...(["clusterIP", "loadBalancer"] as const)
      .filter((id) => draft.isFilled(id))
      .map((id): Rule => ({ chain: services, matches: [draft.matchOf(id, ...BOTH)], target: ACCEPT })),
    ...masqueradeRules(config.masqueradeMark),
  ];
}

function nodePortRules(draft: Draft): Rule[] {
  const chain = CHAINS.nodePort;
  const rows = [
    ["tcp", [chain, "nodePortLocalTCP", ["dst"], RETURN]],
    ["tcp", [chain, "nodePortTCP", ["dst"], MARK]],
    ["udp", [chain, "nodePortLocalUDP", ["dst"], RETURN]],
    ["udp", [chain, "nodePortUDP", ["dst"], MARK]],
    ["sctp", [chain, "nodePortLocalSCTP", BOTH, RETURN]],
    ["sctp", [chain, "nodePortSCTP", BOTH, MARK]],
  ] as const satisfies readonly (readonly [string, Row])[];
  return rows.flatMap(([protocol, row]) => commented(draft, [row], [{ kind: "bare-protocol", protocol }]));
}

/** Masquerades clients of cluster IPs: all clients, all but local pods, or only those whose source is a cluster IP itself. */
function clusterIPRule(draft: Draft, { masqueradeAll, detector }: PlanConfig): Rule[] {
  const others = masqueradeAll ? undefined : localPods(detector, true);
  const directions: readonly SetDirection[] = masqueradeAll || others !== undefined ? BOTH : ["src", "dst"];
  const rules = commented(draft, [[CHAINS.services, "clusterIP", directions, MARK]]);
  return others === undefined ? rules : rules.map((rule) => ({ ...rule, matches: [...rule.matches, others] }));
}

/** Accepts packets from elsewhere or to the node itself for IPVS; others may be meant for a router with that address. */
function externalIPRules(draft: Draft): Rule[] {
  const fromElsewhere: RuleMatch[] = [
    { kind: "bridge-port-in", negate: true },
    { kind: "address-type", side: "source", type: "LOCAL", negate: true },
  ];
  const rules = commented(draft, [[CHAINS.services, "externalIP", BOTH, MARK]]);
  for (const id of ["externalIP", "externalIPLocal"] as const) {
    for (const rule of commented(draft, [[CHAINS.services, id, BOTH, ACCEPT]])) {
      rules.push({ ...rule, matches: [...rule.matches, ...fromElsewhere] });
      rules.push({ ...rule, matches: [...rule.matches, TO_LOCAL] });
    }
  }
  return rules;
}

/** The only rules for a single Service. */
export function rulesOfDenied(deniedVips: readonly DeniedVip[]): Rule[] {
  return deniedVips.map(({ address, protocol, port }) => ({
    chain: CHAINS.ipvsOutFilter,
    matches: [
      { kind: "source", address },
      { kind: "ipvs", address, protocol, port },
    ],
    target: { kind: "drop" },
  }));
}

function filterRules(draft: Draft, config: PlanConfig, deniedVips: readonly DeniedVip[]): Rule[] {
  const { sourceRangesFirewall } = CHAINS;
  return [
    ...commented(draft, [
      [CHAINS.proxyFirewall, "loadBalancerFirewall", BOTH, to(sourceRangesFirewall)],
      [sourceRangesFirewall, "loadBalancerSourceCIDR", ["dst", "dst", "src"], RETURN],
      [sourceRangesFirewall, "loadBalancerSourceIP", ["dst", "dst", "src"], RETURN],
    ]),
    { chain: sourceRangesFirewall, matches: [], target: { kind: "drop" } },
    ...rulesOfDenied(deniedVips),
    ...forwardRules(config.masqueradeMark),
    ...accessRules(draft),
  ];
}

const FRONT_END_SETS = ["loadBalancer", "clusterIP", "externalIP", "externalIPLocal"] as const satisfies SetId[];

/** Ports of the host must not answer at Service addresses, which are local because of kube-ipvs0. */
function accessRules(draft: Draft): Rule[] {
  const chain = CHAINS.ipvsFilter;
  const rules: Rule[] = [];
  const add = (id: SetId, rule: Omit<Rule, "matches">, before: readonly RuleMatch[], ...directions: SetDirection[]) => {
    if (draft.isUsable(id)) rules.push({ ...rule, matches: [...before, draft.matchOf(id, ...directions)] });
  };
  const health = "healthCheckNodePort";
  add(health, { chain: CHAINS.nodePort, target: ACCEPT }, [commentOf(health)], "dst");
  for (const id of FRONT_END_SETS) add(id, { chain, target: RETURN }, [], ...BOTH);
  add(health, { chain, target: RETURN }, [], "dst");
  // If a set of frontends is unusable, this would reject its traffic.
  if (FRONT_END_SETS.every((id) => draft.isUsable(id))) {
    add("ipvsIPs", { chain, target: { kind: "reject" } }, [{ kind: "conntrack-state", states: ["NEW"] }], "dst");
  }
  return rules;
}
