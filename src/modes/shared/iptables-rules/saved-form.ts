/**
 * Rules as `iptables-save` prints them on a node without other rules: its order of chains, its spelling of rules.
 */

import { BUILT_IN_CHAINS, type IptablesTable } from "../../../kernel/iptables/iptables.ts";
import { parseRule, printRule } from "../../../kernel/iptables/parser/rule-syntax.ts";
import { type ChainTexts, NOWHERE, type RuleTexts, type TableTexts } from "../../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { ruleArguments } from "../../../kernel/iptables/rule-text.ts";
import type { IpFamily } from "../../../net/ip.ts";
import type { JumpRule, ServicePortPlan, ServiceTable, StaticPlan } from "./rules-plan.ts";

/** A rule at its place in a chain. One without a target is only counted: the packet in question cannot meet it. */
type PlacedRule = Rule | Pick<Rule, "chain">;

export interface PlacedInTable {
  readonly table: ServiceTable;
  readonly rule: PlacedRule;
}

/** The rules of a whole cluster, or of a part of it. */
interface PlannedRules {
  readonly jumps: readonly JumpRule[];
  readonly fixed: StaticPlan;
  /** The name of a chain in every table. @default none */
  readonly canary?: string | undefined;
  readonly ports: readonly ServicePortPlan[];
  /** Rules in shared chains. @default those of the ports */
  readonly shared?: readonly PlacedInTable[];
}

/** The contents of one table. */
export interface TableContent {
  /** Without the built-in chains. */
  readonly chains: readonly string[];
  /** In order within each chain. */
  readonly rules: readonly PlacedRule[];
}

type TableContents = Readonly<Partial<Record<IptablesTable, TableContent>>>;

/** The tables that a full sync leaves. */
export function tableContents({
  jumps,
  fixed,
  canary,
  ports,
  shared = ports.flatMap((port) => port.shared),
}: PlannedRules): TableContents {
  const inTable = Map.groupBy(shared, ({ table }) => table);
  const everywhere = canary === undefined ? [] : [canary];
  const content = (table: ServiceTable): TableContent => ({
    chains: [
      ...jumps.flatMap((jump) => (jump.table === table ? [jump.target] : [])),
      ...everywhere,
      ...fixed[`${table}Chains`],
      ...(table === "nat" ? ports.flatMap(({ ownChains }) => ownChains) : []),
    ],
    rules: [
      ...jumpRules(table, jumps),
      ...fixed[`${table}Head`],
      ...(inTable.get(table) ?? []).map(({ rule }) => rule),
      ...(table === "nat" ? ports.flatMap(({ ownRules }) => ownRules) : []),
      ...fixed[`${table}Tail`],
    ],
  });
  return {
    ...(canary !== undefined && { mangle: { chains: everywhere, rules: [] } }),
    filter: content("filter"),
    nat: content("nat"),
  };
}

const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/**
 * Prints the tables. Counters are zero; the comments of iptables-save around tables contain a time, and are left out.
 *
 * @param extent a whole table starts with the built-in chains; a part has only its own contents.
 */
export function savedText(tables: TableContents, family: IpFamily, extent: "whole" | "part"): string {
  return TABLES.map((table) => {
    const content = tables[table];
    if (content === undefined || (extent === "part" && content.rules.length === 0)) return "";
    const declared = [...new Set(content.chains)].sort().map((name) => `:${name} - [0:0]`);
    const builtIn = extent === "whole" ? BUILT_IN_CHAINS[table].map((name) => `:${name} ACCEPT [0:0]`) : [];
    const lines = [`*${table}`, ...builtIn, ...declared, ...ruleLines(table, content.rules, family), "COMMIT"];
    return lines.map((line) => `${line}\n`).join("");
  }).join("");
}

/** The same as {@link savedText} for whole tables, for a walk: a rule is spelled only when it is read. */
export function tableTexts(tables: TableContents, family: IpFamily): TableTexts {
  const found = new Map<string, ReadonlyMap<string, ChainTexts>>();
  for (const table of TABLES) {
    const content = tables[table];
    if (content === undefined) continue;
    const byChain = Map.groupBy(content.rules, ({ chain }) => chain);
    const chains = new Map<string, ChainTexts>();
    const put = (name: string, policy: string | undefined) =>
      chains.set(name, { policy, rules: new PlannedRuleList(byChain.get(name) ?? [], family) });
    for (const name of BUILT_IN_CHAINS[table]) put(name, "ACCEPT");
    for (const name of content.chains) put(name, undefined);
    found.set(table, chains);
  }
  return found;
}

class PlannedRuleList implements RuleTexts {
  readonly #rules: readonly PlacedRule[];
  readonly #family: IpFamily;

  constructor(rules: readonly PlacedRule[], family: IpFamily) {
    this.#rules = rules;
    this.#family = family;
  }

  get length(): number {
    return this.#rules.length;
  }

  at(index: number): string | undefined {
    const rule = this.#rules[index];
    return rule !== undefined && "target" in rule ? savedRule(rule, this.#family) : undefined;
  }

  destinationAt(index: number): string | undefined {
    const rule = this.#rules[index];
    return rule !== undefined && "target" in rule ? destinationOf(rule) : NOWHERE;
  }
}

function destinationOf({ matches }: Rule): string | undefined {
  const host = matches.find((match) => match.kind === "destination" && match.negate !== true);
  if (host?.kind === "destination") {
    const [address = "", length] = host.address.split("/");
    if (length === undefined || length === (address.includes(":") ? "128" : "32")) return address;
  }
  const port = matches.find(({ kind }) => kind === "destination-port");
  return port?.kind === "destination-port" ? `:${port.port}` : undefined;
}

/** A rule as iptables-save prints it, without `-A CHAIN`. */
export function savedRule(rule: Rule, family: IpFamily): string {
  return printRule(parseRule(ruleArguments(rule), family));
}

/** A rule as a line of iptables-save. */
export function savedLine(rule: Rule, family: IpFamily): string {
  return `-A ${rule.chain} ${savedRule(rule, family)}`.trimEnd();
}

function ruleLines(table: IptablesTable, rules: readonly PlacedRule[], family: IpFamily): string[] {
  const byChain = Map.groupBy(rules, ({ chain }) => chain);
  const builtIn: readonly string[] = BUILT_IN_CHAINS[table];
  const others = [...byChain.keys()].filter((name) => !builtIn.includes(name)).sort();
  return [...builtIn, ...others].flatMap((name) =>
    (byChain.get(name) ?? []).flatMap((rule) => ("target" in rule ? [savedLine(rule, family)] : [])),
  );
}

/** The jumps of a table in their final order: each is put at the head or the end of its chain. */
export function jumpRules(table: IptablesTable, jumps: readonly JumpRule[]): Rule[] {
  const own = jumps.filter((jump) => jump.table === table);
  const ends = own.filter(({ position }) => position === "end");
  return [...own.filter((jump) => !ends.includes(jump)).toReversed(), ...ends].map(({ rule }) => rule);
}
