/**
 * Rules as `iptables-save` prints them on a node that has nothing else: its order of chains, its spelling of rules. Pure.
 */

import { BUILT_IN_CHAINS } from "../../../kernel/iptables/built-in-chains.ts";
import type { IptablesTable } from "../../../kernel/iptables/iptables.ts";
import { parseRule, printRule } from "../../../kernel/iptables/parser/rule-syntax.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { ruleArguments } from "../../../kernel/iptables/rule-text.ts";
import type { IpFamily } from "../../../net/ip.ts";
import type { JumpRule } from "./rules-plan.ts";

/** What is in one table. */
export interface TableContent {
  /** Without the built-in ones. */
  readonly chains: Iterable<string>;
  /** In order within each chain. */
  readonly rules: readonly Rule[];
}

export type TableContents = Readonly<Partial<Record<IptablesTable, TableContent>>>;

const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/**
 * Prints the tables. Counters are zero; the comments that iptables-save puts around tables name a time, and are left out.
 *
 * @param extent a whole table begins with the built-in chains; a part of one has just what is in it.
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

function ruleLines(table: IptablesTable, rules: readonly Rule[], family: IpFamily): string[] {
  const byChain = Map.groupBy(rules, ({ chain }) => chain);
  const builtIn: readonly string[] = BUILT_IN_CHAINS[table];
  const others = [...byChain.keys()].filter((name) => !builtIn.includes(name)).sort();
  return [...builtIn, ...others].flatMap((name) =>
    (byChain.get(name) ?? []).map((rule) =>
      `-A ${name} ${printRule(parseRule(ruleArguments(rule), family))}`.trimEnd(),
    ),
  );
}

/** The jumps of a table, in the order in which they end up: each is put at the head of its chain or at the end. */
export function jumpRules(table: IptablesTable, jumps: readonly JumpRule[]): Rule[] {
  const own = jumps.filter((jump) => jump.table === table);
  const ends = own.filter(({ position }) => position === "end");
  return [...own.filter((jump) => !ends.includes(jump)).toReversed(), ...ends].map(({ rule }) => rule);
}

/** The chains of a table that jumps lead to. */
export function jumpTargets(table: IptablesTable, jumps: readonly JumpRule[]): string[] {
  return jumps.filter((jump) => jump.table === table).map(({ target }) => target);
}
