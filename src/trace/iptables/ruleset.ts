/** What iptables-save prints as chains that can be walked. Rules are read when a packet meets them. */
import type { KernelRule, KernelTarget } from "../../kernel/iptables/parser/kernel-rule.ts";
import { RuleSyntaxError } from "../../kernel/iptables/parser/rule-options.ts";
import { commentOf } from "../../kernel/iptables/parser/rule-parts.ts";
import { parseRuleText } from "../../kernel/iptables/parser/rule-syntax.ts";
import { printTarget } from "../../kernel/iptables/parser/rule-targets.ts";
import type { SavedChain, SavedTable, UnspelledRules } from "../../kernel/iptables/parser/ruleset.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { BaseChain, Chain, Hook, Rule, Step, StepResult } from "../netfilter/program.ts";
import { endText, masqueraded, type Packet, redirectAddress, withDestination } from "../packet.ts";
import { basicSteps } from "./basic-match.ts";
import { matchStep } from "./match.ts";
import { opaqueSteps } from "./opaque-rule.ts";
import { destinationIn, RuleIndex } from "./rule-index.ts";
import type { Surroundings } from "./surroundings.ts";

/** Priorities of the built-in chains (include/uapi/linux/netfilter_ipv4.h); nat differs by chain. */
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

/** Chains with fewer rules are looked at one by one. */
const INDEXED_LENGTH = 16;

/** The built-in chains of every table. @param tables of one family, as `readRuleset` reads them. Pure. */
export function iptablesChains(
  tables: ReadonlyMap<string, SavedTable>,
  family: IpFamily,
  surroundings: Surroundings,
): BaseChain[] {
  const tool = family === "IPv4" ? "iptables" : "ip6tables";
  return [...tables].flatMap(([table, chains]) => {
    const compiled = new Map<string, Chain>();
    const chainNamed = (name: string): Chain | undefined => {
      const known = compiled.get(name);
      const saved = chains.get(name);
      if (known !== undefined || saved === undefined) return known;
      const chain = compileChain(name, saved, { family, surroundings, hasChain: (other) => chains.has(other) });
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
      return [
        { table: label, type, stage, priority, policy: policy === "DROP" ? "drop" : "accept", chain, chainNamed },
      ];
    });
  });
}

interface RuleContext {
  readonly family: IpFamily;
  readonly surroundings: Surroundings;
  readonly hasChain: (name: string) => boolean;
}

function compileChain(name: string, saved: SavedChain, context: RuleContext): Chain {
  const rules = saved.planned ?? spelledRules(saved.rules);
  const compiled: Rule[] = [];
  let index: RuleIndex | undefined;
  const placeAt = rules.placeAt?.bind(rules);
  const isShort = (placeAt?.(rules.length) ?? rules.length) < INDEXED_LENGTH;
  return {
    name,
    ...(placeAt !== undefined && { placeAt }),
    length: rules.length,
    ruleAt(at) {
      const known = compiled[at];
      const text = known === undefined ? rules.textAt(at) : undefined;
      if (text === undefined) return known;
      compiled[at] = compileRule(text, context);
      return compiled[at];
    },
    asks() {
      if (isShort) return [];
      index ??= new RuleIndex(rules);
      return index.asks;
    },
    firstCandidate(at, packet) {
      if (isShort) return at;
      index ??= new RuleIndex(rules);
      return index.next(at, packet);
    },
  };
}

function spelledRules(texts: readonly string[]): UnspelledRules {
  return {
    length: texts.length,
    textAt: (index) => texts[index],
    destinationAt: (index) => destinationIn(texts[index] ?? ""),
  };
}

function compileRule(text: string, context: RuleContext): Rule {
  return { text, comment: commentOf(text), steps: stepsOf(text, context) };
}

function stepsOf(text: string, { family, surroundings, hasChain }: RuleContext): Step[] {
  let rule: KernelRule;
  try {
    rule = parseRuleText(text, family);
  } catch (error) {
    if (error instanceof RuleSyntaxError) return opaqueSteps(text, family, hasChain);
    throw error;
  }
  const { target } = rule;
  // A word that is neither a known target nor a chain is a target of an extension.
  if ((target.kind === "jump" || target.kind === "goto") && !hasChain(target.chain)) {
    return opaqueSteps(text, family, hasChain);
  }
  const steps = [...basicSteps(rule), ...rule.matches.map((match) => matchStep(match, surroundings))];
  return [...steps, targetStep(target, surroundings)].filter((step) => step !== undefined);
}

const ACCEPT = { kind: "accept" } as const;

/** Compiles a target; undefined for a rule that only counts. Pure. */
export function targetStep(target: KernelTarget, { facts }: Surroundings): Step | undefined {
  if (target.kind === "none") return undefined;
  const asks =
    target.kind === "MASQUERADE" ? [facts.about.destination] : target.kind === "REDIRECT" ? [facts.about.source] : [];
  return { text: printTarget(target), asks, isAction: true, run: (packet) => act(target, packet) };

  function act(chosen: Exclude<KernelTarget, { kind: "none" }>, packet: Packet): StepResult {
    switch (chosen.kind) {
      case "jump":
      case "goto":
        return { kind: "verdict", verdict: chosen };
      case "ACCEPT":
        return { kind: "verdict", verdict: ACCEPT };
      case "DROP":
        return { kind: "verdict", verdict: { kind: "drop" } };
      case "RETURN":
        return { kind: "verdict", verdict: { kind: "return" } };
      case "REJECT":
        return { kind: "verdict", verdict: { kind: "reject", answer: chosen.with } };
      case "MARK": {
        const mark = ((packet.mark & ~chosen.mask) ^ chosen.value) >>> 0;
        return { kind: "go-on", packet: { ...packet, mark }, said: `mark 0x${mark.toString(16)}` };
      }
      case "MASQUERADE": {
        const address = facts.ownAddressTowards(packet.destination);
        const said = `masquerade: the source becomes ${address ?? `the node's address towards ${packet.destination}`}`;
        return { kind: "verdict", verdict: ACCEPT, packet: masqueraded(packet, address), said };
      }
      case "REDIRECT": {
        const own = redirectAddress(packet, facts.ownAddressTowards(packet.source));
        const changed = withDestination(packet, own, chosen.ports?.from);
        const said = `redirect to port ${changed.destinationPort} of the node itself`;
        return { kind: "verdict", verdict: ACCEPT, packet: changed, said };
      }
      case "DNAT": {
        const { address, port } = chosen;
        const said = `dnat to ${endText(address, port)}`;
        return { kind: "verdict", verdict: ACCEPT, packet: withDestination(packet, address, port), said };
      }
    }
  }
}
