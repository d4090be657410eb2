/**
 * Rules as `iptables-save` prints them on a node that has nothing else: its order of chains, its spelling of rules. Pure.
 */

import { BUILT_IN_CHAINS, type IptablesTable } from "../../../kernel/iptables/iptables.ts";
import { parseRule, printRule } from "../../../kernel/iptables/parser/rule-syntax.ts";
import type { SavedChain, SavedTable } from "../../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { ruleArguments } from "../../../kernel/iptables/rule-text.ts";
import type { IpFamily } from "../../../net/ip.ts";
import type { JumpRule, ServicePortPlan, ServiceTable, StaticPlan } from "./rules-plan.ts";

/** Rules at this place of a chain that no packet can meet which is asked about: only their number counts. */
export interface UnplannedRules {
  readonly chain: string;
  readonly count: number;
}

/** Something in a chain of a table. */
export interface InTable<R> {
  readonly table: ServiceTable;
  readonly rule: R;
}

/** Rules of a whole cluster, or of a part of it. */
interface PlannedRules<R extends { readonly chain: string } = Rule> {
  readonly jumps: readonly JumpRule[];
  readonly fixed: StaticPlan;
  /** The name of a chain that is in every table. @default none */
  readonly canary?: string | undefined;
  readonly ports: readonly (Pick<ServicePortPlan, "ownChains" | "ownRules"> & {
    readonly shared: readonly InTable<R>[];
  })[];
}

/** The tables that a full sync leaves. Pure. */
export function tableContents<R extends { readonly chain: string }>({ jumps, fixed, canary, ports }: PlannedRules<R>) {
  const everywhere = canary === undefined ? [] : [canary];
  const content = (table: ServiceTable): TableContent<Rule | R> => ({
    chains: [...jumpTargets(table, jumps), ...everywhere, ...fixed[`${table}Chains`]],
    rules: [
      ...jumpRules(table, jumps),
      ...fixed[`${table}Head`],
      ...ports.flatMap(({ shared }) => shared.filter((one) => one.table === table).map(({ rule }) => rule)),
      ...fixed[`${table}Tail`],
    ],
  });
  return {
    ...(canary !== undefined && { mangle: { chains: everywhere, rules: [] } }),
    filter: content("filter"),
    nat: { ...content("nat"), parts: ports.map(({ ownChains, ownRules }) => ({ chains: ownChains, rules: ownRules })) },
  };
}

/** What is in one table. */
export interface TableContent<R extends { readonly chain: string } = Rule> {
  /** Without the built-in ones. */
  readonly chains: Iterable<string>;
  /** In order within each chain. */
  readonly rules: readonly R[];
  /** Chains that only rules of the same part are in. @default none */
  readonly parts?: readonly TablePart[];
  /** The part that has a chain, planned when a packet comes to it: for {@link savedTables} alone. @default none */
  readonly partWith?: (chain: string) => TablePart | undefined;
}

/** Chains with all of their rules. */
export interface TablePart {
  readonly chains: readonly string[];
  readonly rules: readonly Rule[];
}

type TableContents<R extends { readonly chain: string } = Rule> = Readonly<
  Partial<Record<IptablesTable, TableContent<R>>>
>;

const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/**
 * Prints the tables. Counters are zero; the comments that iptables-save puts around tables name a time, and are left out.
 *
 * @param extent a whole table begins with the built-in chains; a part of one has just what is in it.
 */
export function savedText(tables: TableContents, family: IpFamily, extent: "whole" | "part"): string {
  return TABLES.map((table) => {
    const content = tables[table];
    if (content === undefined || (extent === "part" && isEmpty(content))) return "";
    const { parts = [] } = content;
    const rules = parts.length === 0 ? content.rules : [...content.rules, ...parts.flatMap((part) => part.rules)];
    const chains = new Set([...content.chains, ...parts.flatMap((part) => part.chains)]);
    const declared = [...chains].sort().map((name) => `:${name} - [0:0]`);
    const builtIn = extent === "whole" ? BUILT_IN_CHAINS[table].map((name) => `:${name} ACCEPT [0:0]`) : [];
    const lines = [`*${table}`, ...builtIn, ...declared, ...ruleLines(table, rules, family), "COMMIT"];
    return lines.map((line) => `${line}\n`).join("");
  }).join("");
}

function isEmpty({ rules, parts = [] }: TableContent): boolean {
  return rules.length === 0 && parts.every((part) => part.rules.length === 0);
}

/** The same as {@link savedText} gives for whole tables, read back; a rule is spelled when it is looked at. */
export function savedTables(
  tables: TableContents<Rule | UnplannedRules>,
  family: IpFamily,
): ReadonlyMap<string, SavedTable> {
  const found = new Map<string, SavedTable>();
  for (const table of TABLES) {
    const content = tables[table];
    if (content === undefined) continue;
    const byChain = Map.groupBy(content.rules, ({ chain }) => chain);
    const ofPart = ({ chains: names, rules }: TablePart) =>
      names.map((name) => [name, plannedChain(name, undefined, rules, family)] as const);
    const chains = new ChainsOnDemand((name) => {
      const part = content.partWith?.(name);
      return part === undefined ? [] : ofPart(part);
    });
    const put = (name: string, policy: string | undefined) =>
      chains.set(name, plannedChain(name, policy, byChain.get(name) ?? [], family));
    for (const name of BUILT_IN_CHAINS[table]) put(name, "ACCEPT");
    for (const name of content.chains) put(name, undefined);
    for (const [name, chain] of content.parts?.flatMap(ofPart) ?? []) chains.set(name, chain);
    found.set(table, chains);
  }
  return found;
}

/** Chains of a table that are planned when they are asked for. Listing them shows those that have been. */
class ChainsOnDemand extends Map<string, SavedChain> {
  readonly #plan: (name: string) => readonly (readonly [string, SavedChain])[];

  constructor(plan: (name: string) => readonly (readonly [string, SavedChain])[]) {
    super();
    this.#plan = plan;
  }

  override get(name: string): SavedChain | undefined {
    this.#load(name);
    return super.get(name);
  }

  override has(name: string): boolean {
    this.#load(name);
    return super.has(name);
  }

  #load(name: string): void {
    if (super.has(name)) return;
    for (const [planned, chain] of this.#plan(name)) super.set(planned, chain);
  }
}

/** @param around has the chain's rules, perhaps among others. */
function plannedChain(
  name: string,
  policy: string | undefined,
  around: readonly (Rule | UnplannedRules)[],
  family: IpFamily,
): SavedChain {
  let own: OwnRules | undefined;
  const all = (): OwnRules => {
    own ??= ownRules(name, around);
    return own;
  };
  return {
    policy,
    get rules() {
      return all().rules.map((rule) => savedRule(rule, family));
    },
    planned: {
      get length() {
        return all().rules.length;
      },
      textAt(index) {
        const rule = all().rules[index];
        return rule === undefined ? undefined : savedRule(rule, family);
      },
      destinationAt: (index) => destinationOf(all().rules[index]),
      placeAt: (index) => all().places[index] ?? all().total,
    },
  };
}

function destinationOf({ matches = [] }: Partial<Rule> = {}): string | undefined {
  const host = matches.find((match) => match.kind === "destination" && match.negate !== true);
  if (host?.kind === "destination") {
    const [address = "", length] = host.address.split("/");
    if (length === undefined || length === (address.includes(":") ? "128" : "32")) return address;
  }
  const port = matches.find(({ kind }) => kind === "destination-port");
  return port?.kind === "destination-port" ? `:${port.port}` : undefined;
}

/** The rules of one chain, with the place of each. */
interface OwnRules {
  readonly rules: readonly Rule[];
  readonly places: readonly number[];
  readonly total: number;
}

function ownRules(name: string, around: readonly (Rule | UnplannedRules)[]): OwnRules {
  const rules: Rule[] = [];
  const places: number[] = [];
  let total = 0;
  for (const one of around) {
    if (one.chain !== name) continue;
    if ("count" in one) {
      total += one.count;
      continue;
    }
    rules.push(one);
    places.push(total);
    total += 1;
  }
  return { rules, places, total };
}

/** A rule as iptables-save prints it, without `-A CHAIN`. Pure. */
export function savedRule(rule: Rule, family: IpFamily): string {
  return printRule(parseRule(ruleArguments(rule), family));
}

/** A rule as a line of iptables-save. Pure. */
export function savedLine(rule: Rule, family: IpFamily): string {
  return `-A ${rule.chain} ${savedRule(rule, family)}`.trimEnd();
}

function ruleLines(table: IptablesTable, rules: readonly Rule[], family: IpFamily): string[] {
  const byChain = Map.groupBy(rules, ({ chain }) => chain);
  const builtIn: readonly string[] = BUILT_IN_CHAINS[table];
  const others = [...byChain.keys()].filter((name) => !builtIn.includes(name)).sort();
  return [...builtIn, ...others].flatMap((name) => (byChain.get(name) ?? []).map((rule) => savedLine(rule, family)));
}

/** The jumps of a table, in the order in which they end up: each is put at the head of its chain or at the end. */
export function jumpRules(table: IptablesTable, jumps: readonly JumpRule[]): Rule[] {
  const own = jumps.filter((jump) => jump.table === table);
  const ends = own.filter(({ position }) => position === "end");
  return [...own.filter((jump) => !ends.includes(jump)).toReversed(), ...ends].map(({ rule }) => rule);
}

/** The chains of a table that jumps lead to. */
function jumpTargets(table: IptablesTable, jumps: readonly JumpRule[]): string[] {
  return jumps.filter((jump) => jump.table === table).map(({ target }) => target);
}
