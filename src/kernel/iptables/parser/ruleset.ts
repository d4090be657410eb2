/**
 * The text of `iptables-save` as typed rules. Rules of other programs that are not understood stay as text, so that one
 * exotic rule does not hide the rest. Pure.
 */
import type { IpFamily } from "../../../net/ip.ts";
import type { KernelRule } from "./kernel-rule.ts";
import { parseRuleText } from "./rule-syntax.ts";
import { RuleSyntaxError } from "./rule-words.ts";

/** A rule as printed, and as read; `rule` is undefined when it has parts that are not understood, `problem` says which. */
export interface SavedRule {
  readonly text: string;
  readonly rule: KernelRule | undefined;
  readonly problem: string | undefined;
}

export interface SavedChain {
  /** `ACCEPT` or `DROP` for built-in chains; undefined for others. */
  readonly policy: string | undefined;
  readonly rules: readonly SavedRule[];
}

/** Chains by name, in the order in which they were printed. */
export type SavedTable = ReadonlyMap<string, SavedChain>;

/** Reads every table of a dump, by table name. Counters are ignored. Pure. */
export function readRuleset(saved: string, family: IpFamily): ReadonlyMap<string, SavedTable> {
  const tables = new Map<string, Map<string, { policy: string | undefined; rules: SavedRule[] }>>();
  let chains = new Map<string, { policy: string | undefined; rules: SavedRule[] }>();
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) {
      chains = new Map();
      tables.set(line.slice(1).trim(), chains);
    } else if (line.startsWith(":")) {
      const [name = "", policy = "-"] = line.slice(1).split(" ");
      chains.set(name, { policy: policy === "-" ? undefined : policy, rules: [] });
    } else {
      const found = APPEND.exec(line);
      if (found !== null) chains.get(found[1] ?? "")?.rules.push(savedRule(found[2] ?? "", family));
    }
  }
  return tables;
}

const APPEND = /^(?:\[\d+:\d+\] )?-A (\S+) ?(.*)$/;

/** Reads one rule without `-A CHAIN`; never throws. Pure. */
export function savedRule(text: string, family: IpFamily): SavedRule {
  try {
    return { text, rule: parseRuleText(text, family), problem: undefined };
  } catch (error) {
    if (!(error instanceof RuleSyntaxError)) throw error;
    return { text, rule: undefined, problem: error.message };
  }
}
