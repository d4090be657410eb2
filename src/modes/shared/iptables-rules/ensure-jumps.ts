/**
 * Ensures that the jumps from the built-in chains exist exactly once. Reference iptables.md §2. Starts as few processes
 * as possible: with the legacy back end each one reads a whole table.
 */
import { type Iptables, type IptablesTable, isAttributable } from "../../../kernel/iptables/iptables.ts";
import type { SavedTable } from "../../../kernel/iptables/parser/ruleset.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { chainLines, ruleArguments, ruleLines, ruleSpec, transactionText } from "../../../kernel/iptables/rule-text.ts";
import type { JumpRule } from "./rules-plan.ts";

/** The kernel's tables before; undefined if they could not be read. */
export interface KnownTables {
  readonly filter: SavedTable | undefined;
  /** Names of the chains of nat. */
  readonly natChains: Iterable<string> | undefined;
}

/** Creates missing chains and jumps, in order. Rejects if the kernel rejects one. */
export async function ensureJumps(iptables: Iptables, known: KnownTables, jumps: readonly JumpRule[]): Promise<void> {
  const chains: Partial<Record<IptablesTable, ReadonlySet<string>>> = {
    ...(known.filter !== undefined && { filter: new Set(known.filter.keys()) }),
    ...(known.natChains !== undefined && { nat: new Set(known.natChains) }),
  };
  // A chain that does not exist has no jumps to it.
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

/** Whether a saved table prints the rule exactly as it is written here. */
export function isPrinted(table: SavedTable | undefined, rule: Rule): boolean {
  const wanted = ruleSpec(rule).slice(rule.chain.length + 1);
  return table?.get(rule.chain)?.rules.includes(wanted) ?? false;
}

/** The lines of a transaction that put jumps at their positions. */
export function jumpLines(jumps: readonly JumpRule[]): string {
  return jumps.map(({ rule, position }) => ruleLines(position === "end" ? "append" : "insert", [rule])).join("");
}

/** Adds new chains and the jumps to them with one process; false if rejected: the caller then goes step by step. */
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
