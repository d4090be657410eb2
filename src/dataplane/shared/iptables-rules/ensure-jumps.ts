/**
 * The jumps from the built-in chains: there, and no more often than once. Reference iptables.md §2. Every process that can be
 * spared is: with the legacy back end each one reads a whole table.
 */
import { type Iptables, type IptablesTable, isAttributable } from "../../../kernel/iptables/iptables.ts";
import type { SavedTable } from "../../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { chainLines, ruleArguments, ruleLines, ruleSpec, transactionText } from "../../../kernel/iptables/rule-text.ts";
import type { JumpRule } from "./rules-plan.ts";

/** The kernel's tables before; undefined where they could not be read. */
export interface KnownTables {
  readonly filter: SavedTable | undefined;
  /** Names of the chains of nat. */
  readonly natChains: Iterable<string> | undefined;
}

/** Makes what is missing, in order. Rejects when the kernel refuses. */
export async function ensureJumps(iptables: Iptables, known: KnownTables, jumps: readonly JumpRule[]): Promise<void> {
  const chains: Partial<Record<IptablesTable, ReadonlySet<string>>> = {
    ...(known.filter !== undefined && { filter: new Set(known.filter.keys()) }),
    ...(known.natChains !== undefined && { nat: new Set(known.natChains) }),
  };
  // Nothing can lead to a chain that does not exist.
  const isNew = ({ table, target }: JumpRule) => chains[table]?.has(target) === false;
  const added = jumps.filter(isNew);
  const isAdded = added.length > 0 && (await insertAll(iptables, added));
  for (const jump of jumps) {
    const { table, rule, target, position } = jump;
    const isThere = isNew(jump) ? isAdded : table === "filter" && isPrinted(known.filter, rule);
    if (isThere) continue;
    if (chains[table]?.has(target) !== true) await iptables.ensureChain(table, target);
    await iptables.ensureRule(table, rule.chain, ruleArguments(rule), position);
  }
}

/** Whether a saved table has the rule in the very words in which it is written here. */
export function isPrinted(table: SavedTable | undefined, rule: Rule): boolean {
  const wanted = ruleSpec(rule).slice(rule.chain.length + 1);
  return table?.get(rule.chain)?.rules.includes(wanted) ?? false;
}

/** The lines of a transaction that put jumps where they belong. */
export function jumpLines(jumps: readonly JumpRule[]): string {
  return jumps.map(({ rule, position }) => ruleLines(position === "end" ? "append" : "insert", [rule])).join("");
}

/** Puts new chains and the jumps to them in place with one process; false when that is refused: step by step, then. */
async function insertAll(iptables: Iptables, jumps: readonly JumpRule[]): Promise<boolean> {
  const text = (["filter", "nat"] as const).map((table) => {
    const own = jumps.filter((jump) => jump.table === table);
    if (own.length === 0) return "";
    const targets = [...new Set(own.map(({ target }) => target))];
    return transactionText(table, chainLines(targets) + jumpLines(own));
  });
  try {
    await iptables.restore([text.join("")]);
    return true;
  } catch (error) {
    if (!isAttributable(error)) throw error;
    return false;
  }
}
