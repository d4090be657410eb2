/** The output of iptables-save as chains to walk. Rules are parsed when a packet meets them. */
import { type LooseRule, parseLoosely } from "../../kernel/iptables/parser/loose-rule.ts";
import { RuleSyntaxError } from "../../kernel/iptables/parser/rule-options.ts";
import { commentOf, withoutQuoted } from "../../kernel/iptables/parser/rule-parts.ts";
import { type ChainTexts, NOWHERE, type TableTexts } from "../../kernel/iptables/parser/ruleset.ts";
import { attempt } from "../../logging/attempt.ts";
import type { IpFamily } from "../../net/ip.ts";
import { type BaseChain, type Chain, type Hook, lost, type Rule, type Step } from "../netfilter/program.ts";
import { indexedChain, withSettled } from "../netfilter/rule-index.ts";
import type { PacketField } from "../question.ts";
import { basicSteps } from "./basic-match.ts";
import { foreignStep } from "./foreign-match.ts";
import { matchStep } from "./match.ts";
import { comparingStep, keysOf } from "./rule-key.ts";
import type { Surroundings } from "./surroundings.ts";
import { type RuleContext, targetStep } from "./target.ts";

/** Priorities of the built-in chains (include/uapi/linux/netfilter_ipv4.h); in nat they depend on the chain. */
const PRIORITIES: Readonly<Record<string, number>> = { raw: -300, mangle: -150, filter: 0, security: 50 };
const NAT_PRIORITIES: Readonly<Record<Hook, number>> = {
  prerouting: -100,
  output: -100,
  input: 100,
  postrouting: 100,
  forward: 0,
};
const STAGES: Readonly<Record<string, Hook>> = {
  PREROUTING: "prerouting",
  INPUT: "input",
  FORWARD: "forward",
  OUTPUT: "output",
  POSTROUTING: "postrouting",
};

/** The built-in chains of every table. @param tables of one family, from `readRuleset`. @param backEnd what its name ends with. */
export function iptablesChains(
  tables: TableTexts,
  family: IpFamily,
  surroundings: Surroundings,
  backEnd = "",
): BaseChain[] {
  const tool = `${family === "IPv4" ? "iptables" : "ip6tables"}${backEnd}`;
  return [...tables].flatMap(([table, chains]) => {
    const compiled = new Map<string, Chain>();
    const chainNamed = (name: string): Chain | undefined => {
      const known = compiled.get(name);
      const saved = chains.get(name);
      if (known !== undefined || saved === undefined) return known;
      const hasChain = (other: string) => chains.has(other);
      const chain = compileChain(name, saved, { family, surroundings, hasChain });
      compiled.set(name, chain);
      return chain;
    };
    return Object.entries(STAGES).flatMap(([name, stage]): BaseChain[] => {
      const chain = chainNamed(name);
      if (chain === undefined) return [];
      const policy = chains.get(name)?.policy;
      const priority = table === "nat" ? NAT_PRIORITIES[stage] : (PRIORITIES[table] ?? 0);
      const type = table === "nat" ? "nat" : "filter";
      const label = `${tool} -t ${table}`;
      const reroutes = table === "mangle" && stage === "output";
      return [
        {
          table: label,
          type,
          stage,
          priority,
          policy: policy === "DROP" ? "drop" : "accept",
          chain,
          chainNamed,
          reroutes,
        },
      ];
    });
  });
}

function compileChain(name: string, { rules }: ChainTexts, context: RuleContext): Chain {
  return indexedChain({
    name,
    length: rules.length,
    keysAt: keysOf(rules),
    isNever: (index) => rules.destinationAt?.(index) === NOWHERE,
    compile: (index, settled) => compileRule(rules.at(index) ?? "", context, settled),
  });
}

/** @param settled the field that is compared before the rule is looked at. */
function compileRule(text: string, context: RuleContext, settled: PacketField | undefined): Rule {
  const comment = commentOf(text);
  // A quote may not be closed.
  const rule = attempt(() => parseLoosely(text, context.family), RuleSyntaxError);
  if (rule === undefined) {
    return { text, comment, steps: [{ text, run: () => lost(`"${text}" is not understood`) }] };
  }
  const action = targetStep(rule, context);
  const steps = [...basicSteps(rule), ...matchSteps(rule, text, context), ...(action === undefined ? [] : [action])];
  return {
    text,
    comment,
    isIdle: action === undefined && !WRITES.test(withoutQuoted(text)),
    steps: withSettled(steps, comparingStep(steps, settled), settled),
  };
}

function matchSteps(rule: LooseRule, text: string, { surroundings }: RuleContext): Step[] {
  const matches = rule.matches.map((match) => matchStep(match, surroundings));
  return [...rule.foreign.map((part) => foreignStep(part, text)), ...matches.filter((step) => step !== undefined)];
}

/** A match or a target of a rule that nft lists. @param text `-m …` or `-j …`. */
export function extensionSteps(text: string, context: Omit<RuleContext, "hasChain">): Step[] {
  const [, name = ""] = /^-m (tcp|udp|sctp) /.exec(text) ?? [];
  const around = { ...context, hasChain: () => false };
  // Statements before it compare the protocol; a port of a target needs one of these.
  const rule = parseLoosely(`-p ${name || "tcp"} ${text}`, context.family);
  const action = targetStep(rule, around);
  return [...matchSteps(rule, text, around), ...(action === undefined ? [] : [action])];
}

/** Matches that write: what they leave is seen by later rules. */
export const WRITES = /(?<!\S)-m (?:recent|connlabel|cluster|socket) /;
