/** Lines of iptables-restore: where typed rules become text. Reference iptables-operation.md §9. Pure. */
import type { PrintedRule, Rule } from "../../../kernel/iptables/rule.ts";
import { ruleSpec } from "../../../kernel/iptables/rule-text.ts";

const OPTIONS = { append: "-A", insert: "-I", delete: "-D" } as const;

/** One line for each rule, which goes to the end of its chain, to its head, or away. Throws a RangeError as `ruleSpec` does. */
export function ruleLines(command: keyof typeof OPTIONS, rules: readonly (Rule | PrintedRule)[]): string {
  const option = OPTIONS[command];
  // Joined, for a text that grows is a tree of pieces, and a full sync keeps it until it is sent.
  return rules.map((rule) => `${option} ${ruleSpec(rule)}\n`).join("");
}

/** Makes chains; those that exist are emptied. */
export function chainLines(chains: readonly string[]): string {
  return chains.map((chain) => `:${chain} - [0:0]\n`).join("");
}

/** Deletes chains that are empty. */
export function deletionLines(chains: readonly string[]): string {
  return chains.map((chain) => `-X ${chain}\n`).join("");
}

/** A whole transaction. */
export function transactionText(table: string, lines: string): string {
  return `*${table}\n${lines}COMMIT\n`;
}
