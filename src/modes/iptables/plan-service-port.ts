/**
 * All rules of one service port: its entries in the shared chains and the chains it owns. Reference iptables.md §6, §7.
 * The same input gives the same plan, in the same order.
 */
import { hashProgramText } from "../../kernel/iptables/hash-program.ts";
import type { ChainName, Rule, RuleMatch, RuleTarget } from "../../kernel/iptables/rule.ts";
import { cellsOf } from "../../model/cells.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { type Frontend, frontendsOf } from "../../model/frontend.ts";
import { ALL_HASHES, hashTurns } from "../../model/hash-order.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../model/service-port-routing.ts";
import { type Cidr, cidrContains, type IpAddress, LOOPBACK } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import {
  CHAINS,
  endpointChain,
  type ServicePortChains,
  servicePortChains,
} from "../shared/iptables-rules/chain-names.ts";
import type { ServicePortPlan, SharedRule } from "../shared/iptables-rules/rules-plan.ts";
import { localPods } from "../shared/iptables-rules/top-level-rules.ts";
import { COUNTERS, type PlanConfig, type PlanFacts } from "./plan-options.ts";

/** The decisions of iptables.md §6, made once and used by every block. */
interface Decisions {
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
  readonly port: ServicePort;
  readonly protocol: RuleMatch;
  readonly chains: ServicePortChains;
  readonly routing: ServicePortRouting;
  readonly frontends: readonly Frontend[];
  readonly usesFirewallChain: boolean;
  readonly internalChain: ChainName;
  readonly externalPolicyChain: ChainName;
}

/** Plans one service port. @param endpoints all its endpoints, sorted by text; may be empty. */
export function planServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
): ServicePortPlan {
  const routing = routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone });
  const chains = servicePortChains(port.name);
  const isRestricted = port.loadBalancerVIPs.length > 0 && port.loadBalancerSourceRanges.length > 0;
  const d: Decisions = {
    config,
    facts,
    port,
    protocol: { kind: "protocol", protocol: protocolName(port.protocol) },
    chains,
    routing,
    frontends: frontendsOf(port, routing),
    usesFirewallChain: routing.categories.hasAny && isRestricted,
    internalChain: port.internalPolicyLocal ? chains.local : chains.cluster,
    externalPolicyChain: port.externalPolicyLocal ? chains.local : chains.cluster,
  };
  const own = new OwnChains();
  planInternalMasquerade(own, d);
  planExternalChain(own, d);
  planFirewallChain(own, d);
  planEndpointChains(own, d);
  return { shared: sharedRules(d), ownChains: own.chains, ownRules: own.rules };
}

const comment = (text: string): RuleMatch => ({ kind: "comment", text });
const jump = (chain: ChainName): RuleTarget => ({ kind: "jump", chain });
const MARK_MASQUERADE = jump(CHAINS.markMasquerade);

/** Puts the comment, if any, before the matches; without one, returns the list itself, because there are many. */
function noted(note: RuleMatch | undefined, ...matches: readonly RuleMatch[]): readonly RuleMatch[] {
  return note === undefined ? matches : [note, ...matches];
}

/** A frontend's destination: `{P} -d address --dport port`; for a node port, `{P} --dport port`. */
function destination(d: Decisions, { address, port }: Pick<Frontend, "address" | "port">): RuleMatch[] {
  const matches: RuleMatch[] = [d.protocol];
  if (address !== undefined) matches.push({ kind: "destination", address });
  matches.push({ kind: "destination-port", port });
  return matches;
}

/** Block 7A: dispatch in nat; rejection, firewall and health-check entries in filter. */
function sharedRules(d: Decisions): SharedRule[] {
  const { port, chains, config, facts } = d;
  const name = port.name.text;
  const { hasAny } = d.routing.categories;
  const shared: SharedRule[] = [];
  const nat = (chain: ChainName, text: string, matches: RuleMatch[], target: ChainName) =>
    shared.push({ table: "nat", rule: { chain, matches: [comment(text), ...matches], target: jump(target) } });
  const filter = (chain: ChainName, text: string, matches: RuleMatch[], target: RuleTarget) =>
    shared.push({ table: "filter", rule: { chain, matches: [comment(text), ...matches], target } });
  const refusal: RuleTarget = hasAny ? { kind: "drop" } : { kind: "reject" };
  const refusalText = hasAny ? `${name} has no local endpoints` : `${name} has no endpoints`;
  const refuse = (chain: ChainName, matches: RuleMatch[]) => filter(chain, refusalText, matches, refusal);

  const balancerTarget = d.usesFirewallChain ? chains.firewall : chains.external;
  for (const frontend of d.frontends) {
    const matches = destination(d, frontend);
    const isServedSomewhere = frontend.fate !== "refuse";
    switch (frontend.kind) {
      case "cluster-ip":
        if (frontend.fate === "serve") nat(CHAINS.services, `${name} cluster IP`, matches, d.internalChain);
        else refuse(CHAINS.services, matches);
        break;
      case "external-ip":
        if (isServedSomewhere) nat(CHAINS.services, `${name} external IP`, matches, chains.external);
        if (frontend.fate !== "serve") refuse(CHAINS.externalServices, matches);
        break;
      case "load-balancer":
        if (isServedSomewhere) nat(CHAINS.services, `${name} loadbalancer IP`, matches, balancerTarget);
        if (d.usesFirewallChain) {
          const text = `${name} traffic not accepted by ${chains.firewall}`;
          filter(CHAINS.proxyFirewall, text, matches, { kind: "drop" });
        }
        if (frontend.fate !== "serve") refuse(CHAINS.externalServices, matches);
        break;
      case "node-port":
        if (isServedSomewhere) {
          if (config.localhostNodePorts && facts.counters.localhostNodePorts) {
            const localhost: RuleMatch = { kind: "destination", address: LOOPBACK.IPv4 };
            const counter: RuleMatch = { kind: "nfacct", counter: COUNTERS.localhostNodePorts };
            nat(CHAINS.nodePorts, name, [d.protocol, localhost, ...matches.slice(1), counter], chains.external);
          }
          nat(CHAINS.nodePorts, name, matches, chains.external);
        }
        if (frontend.fate !== "serve") {
          const local: RuleMatch = { kind: "address-type", side: "destination", type: "LOCAL" };
          refuse(CHAINS.externalServices, [local, ...matches]);
        }
    }
  }

  if (port.healthCheckNodePort !== 0) {
    const matches: RuleMatch[] = [
      { kind: "protocol", protocol: "tcp" },
      { kind: "destination-port", port: port.healthCheckNodePort },
    ];
    filter(CHAINS.nodePorts, `${name} health check node port`, matches, { kind: "accept" });
  }
  return shared;
}

/** Collects the chains a port owns; each is declared once, when it gets its first block. */
class OwnChains {
  readonly chains: ChainName[] = [];
  readonly rules: Rule[] = [];
  declare(chain: ChainName): void {
    this.chains.push(chain);
  }
  add(chain: ChainName, matches: readonly RuleMatch[], target: RuleTarget): void {
    this.rules.push({ chain, matches, target });
  }
}

/** Block 1: off-node traffic (or all) to the cluster IP must return through this node. */
function planInternalMasquerade(own: OwnChains, d: Decisions): void {
  const frontend = d.frontends.find(({ kind }) => kind === "cluster-ip");
  if (frontend?.fate !== "serve") return;
  const matches: RuleMatch[] = [comment(`${d.port.name.text} cluster IP`), ...destination(d, frontend)];
  if (!d.config.masqueradeAll) {
    const notLocal = localPods(d.config.detector, true);
    if (notLocal === undefined) return;
    matches.push(notLocal);
  }
  own.add(d.internalChain, matches, MARK_MASQUERADE);
}

/** Block 2: traffic to every external destination enters here. */
function planExternalChain(own: OwnChains, d: Decisions): void {
  if (!d.routing.usesExternal) return;
  const { chains, port } = d;
  const destinations = `${port.name.text} external destinations`;
  own.declare(chains.external);
  if (!port.externalPolicyLocal) {
    own.add(chains.external, [comment(`masquerade traffic for ${destinations}`)], MARK_MASQUERADE);
  } else {
    const local = localPods(d.config.detector, false);
    if (local !== undefined) {
      own.add(chains.external, [comment(`pod traffic for ${destinations}`), local], jump(chains.cluster));
    }
    const fromNode: RuleMatch = { kind: "address-type", side: "source", type: "LOCAL" };
    own.add(chains.external, [comment(`masquerade LOCAL traffic for ${destinations}`), fromNode], MARK_MASQUERADE);
    own.add(chains.external, [comment(`route LOCAL traffic for ${destinations}`), fromNode], jump(chains.cluster));
  }
  if (d.routing.hasExternal) own.add(chains.external, [], jump(d.externalPolicyChain));
}

/** Block 3: load-balancer traffic from the listed sources only; the rest leaves un-NATed and is dropped in filter. */
function planFirewallChain(own: OwnChains, d: Decisions): void {
  if (!d.usesFirewallChain) return;
  const { chains, port, config } = d;
  const name = port.name.text;
  const allow = (source: Cidr | IpAddress) =>
    own.add(
      chains.firewall,
      [comment(`${name} loadbalancer IP`), { kind: "source", address: source }],
      jump(chains.external),
    );
  own.declare(chains.firewall);
  for (const range of port.loadBalancerSourceRanges) allow(range);
  // If the node itself is allowed, load-balancer traffic that hairpins has the VIP as its source.
  if (port.loadBalancerSourceRanges.some((range) => cidrContains(range, config.nodeIP))) {
    for (const vip of port.loadBalancerVIPs) allow(vip);
  }
  const note = `other traffic to ${name} will be dropped by ${CHAINS.proxyFirewall}`;
  own.add(chains.firewall, [comment(note)], { kind: "none" });
}

/** Blocks 4 to 6: endpoint choice in SVC and SVL, and one chain for each endpoint that either uses. */
function planEndpointChains(own: OwnChains, d: Decisions): void {
  const { port, chains, facts } = d;
  const { cluster, local, categories } = d.routing;
  const names = new Map<string, ChainName>();
  for (const endpoint of categories.reachable) names.set(endpoint.text, endpointChain(port.name, endpoint));
  if (cluster.length > 0) planChoice(own, d, chains.cluster, cluster, names);
  if (local.length > 0) planChoice(own, d, chains.local, local, names);
  const note = facts.isLargeCluster ? undefined : comment(port.name.text);
  const isSticky = port.sessionAffinity === "ClientIP";
  for (const endpoint of categories.reachable) {
    const chain = names.get(endpoint.text);
    if (chain === undefined) continue;
    own.declare(chain);
    own.add(chain, noted(note, { kind: "source", address: endpoint.ip }), MARK_MASQUERADE);
    const matches = isSticky ? noted(note, { kind: "recent-set", name: chain }, d.protocol) : noted(note, d.protocol);
    own.add(chain, matches, { kind: "dnat", to: endpoint.text });
  }
}

function planChoice(
  own: OwnChains,
  d: Decisions,
  chain: ChainName,
  endpoints: readonly Endpoint[],
  names: ReadonlyMap<string, ChainName>,
): void {
  const { port, config, facts } = d;
  const noteOf = (endpoint: Endpoint): RuleMatch | undefined =>
    facts.isLargeCluster ? undefined : comment(`${port.name.text} -> ${endpoint.text}`);
  own.declare(chain);
  if (port.sessionAffinity === "ClientIP") {
    for (const endpoint of endpoints) {
      const target = names.get(endpoint.text);
      if (target === undefined) continue;
      const recent: RuleMatch = { kind: "recent-check", name: target, seconds: port.stickyMaxAgeSeconds };
      own.add(chain, noted(noteOf(endpoint), recent), jump(target));
    }
  }
  const turns =
    port.balancing !== undefined && facts.canHash !== false ? byHash(port, endpoints, config) : byChance(endpoints);
  for (const [endpoint, match] of turns) {
    const target = names.get(endpoint.text);
    const note = noteOf(endpoint);
    if (target !== undefined) own.add(chain, match === undefined ? noted(note) : noted(note, match), jump(target));
  }
}

/** An endpoint, and what sends a connection to it that no endpoint before has got; the last one gets all. */
type Turn = readonly [endpoint: Endpoint, match: RuleMatch | undefined];

function byChance(endpoints: readonly Endpoint[]): Turn[] {
  const cells = cellsOf(endpoints);
  let remaining = cells.reduce((sum, count) => sum + count, 0);
  return endpoints.map((endpoint, index) => {
    const count = cells[index] ?? 1;
    const probability = oneInText(remaining / count);
    remaining -= count;
    return [endpoint, remaining === 0 ? undefined : { kind: "random", probability }];
  });
}

/** In the order of {@link hashTurns}, so that a client has the same endpoint through every node. */
function byHash({ balancing }: ServicePort, endpoints: readonly Endpoint[], { family, hashSeed }: PlanConfig): Turn[] {
  const isFlow = balancing === "FlowHash";
  return hashTurns(endpoints, hashSeed).map(({ endpoint, seed, below }) => {
    const code = hashProgramText({ family, isFlow, seed, below });
    return [endpoint, below === ALL_HASHES ? undefined : { kind: "bytecode", code }];
  });
}

const DECIMALS = 10;
const texts = new Map<number, string>();

/** `1/k` with ten decimals, for any k from 1, rounded half to even (iptables.md §7B). Whole ones are cached, because endpoint lists repeat them; weights can make up any number. */
export function oneInText(k: number): string {
  const known = texts.get(k);
  if (known !== undefined) return known;
  const text = format(1 / k);
  if (Number.isInteger(k)) texts.set(k, text);
  return text;
}

function format(value: number): string {
  // toFixed rounds exact ties up; 60 digits print a double of this size exactly.
  const exact = value.toFixed(60);
  const cut = exact.indexOf(".") + 1 + DECIMALS;
  const isTie = /^50*$/.test(exact.slice(cut));
  return isTie && Number(exact[cut - 1]) % 2 === 0 ? exact.slice(0, cut) : value.toFixed(DECIMALS);
}
