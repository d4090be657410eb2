/** Looks a rule up in the text of iptables-save, for rule commands without `-C` (before 1.4.11). Pure. */
import type { IpFamily } from "../../../net/ip.ts";
import { parseRule, printRule } from "./rule-syntax.ts";
import { savedRule } from "./ruleset.ts";

/**
 * Whether the dump of one table has the rule in the chain, whatever the order of its words. Throws RuleSyntaxError when
 * the wanted rule itself is not understood.
 */
export function hasSavedRule(saved: string, family: IpFamily, chain: string, args: readonly string[]): boolean {
  const wanted = printRule(parseRule(args, family));
  const prefix = `-A ${chain} `;
  return saved.split("\n").some((line) => {
    if (!line.startsWith(prefix)) return false;
    const { rule } = savedRule(line.slice(prefix.length), family);
    return rule !== undefined && printRule(rule) === wanted;
  });
}
