/** The output of iptables-save as chains to walk. Rules are parsed when a packet meets them. */
import { RuleSyntaxError } from "../../kernel/iptables/parser/rule-options.ts";
import { commentOf, targetOf, withoutQuoted } from "../../kernel/iptables/parser/rule-parts.ts";
import { type KernelRule, parseRuleText } from "../../kernel/iptables/parser/rule-syntax.ts";
import { type KernelTarget, printTarget } from "../../kernel/iptables/parser/rule-targets.ts";
import { type ChainTexts, NOWHERE, type TableTexts } from "../../kernel/iptables/parser/ruleset.ts";
import { type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { iptablesAction } from "../netfilter/actions.ts";
import {
  type BaseChain,
  type Chain,
  GO_ON,
  type Hook,
  NO_CONNECTION,
  NO_MATCH,
  type Rule,
  type Step,
  type StepResult,
  type Verdict,
} from "../netfilter/program.ts";
import { masquerade, redirect, translated } from "../netfilter/translations.ts";
import {
  ALL_BITS,
  type ConnectionMark,
  endText,
  hasConnection,
  type Packet,
  withDestination,
  withSource,
} from "../packet.ts";
import { basicSteps, protocolStep } from "./basic-match.ts";
import { matchStep } from "./match.ts";
import { RuleIndex } from "./rule-index.ts";
import type { Surroundings } from "./surroundings.ts";

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

/** Shorter chains are not indexed. */
const INDEXED_LENGTH = 16;

/** The built-in chains of every table. @param tables of one family, from `readRuleset`. */
export function iptablesChains(tables: TableTexts, family: IpFamily, surroundings: Surroundings): BaseChain[] {
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

function compileChain(name: string, { rules }: ChainTexts, context: RuleContext): Chain {
  const compiled: Rule[] = [];
  let index: RuleIndex | undefined;
  const isShort = rules.length < INDEXED_LENGTH;
  return {
    name,
    length: rules.length,
    ruleAt(at) {
      const known = compiled[at];
      const text = known === undefined ? rules.at(at) : undefined;
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
      if (!isShort) {
        index ??= new RuleIndex(rules);
        return index.next(at, packet);
      }
      let next = at;
      while (next < rules.length && rules.destinationAt?.(next) === NOWHERE) next += 1;
      return next;
    },
  };
}

function compileRule(text: string, context: RuleContext): Rule {
  const isIdle = isIdleRule(text, context.hasChain);
  return { text, comment: commentOf(text), isIdle, steps: stepsOf(text, context) };
}

/** A protocol that Services cannot have, where the tools print it: `-i eth0 -p esp -j ACCEPT`. */
const OTHER_PROTOCOL =
  /^((?:(?:! )?-[sdio] \S+ )*)(! )?-p (?!(?:all|tcp|udp|sctp|icmp|ipv6-icmp|icmpv6|0|1|6|17|58|132) )(\S+)/;

function stepsOf(text: string, context: RuleContext): Step[] {
  const { family, surroundings, hasChain } = context;
  const rule = parsed(text, family);
  // A name that is neither a known target nor a chain is an extension's target.
  if (rule !== undefined && (!("chain" in rule.target) || hasChain(rule.target.chain))) {
    const action = targetStep(rule.target, surroundings);
    return [...conditionSteps(rule, surroundings), ...(action === undefined ? [] : [action])];
  }
  const [given, before = "", not, protocol] = OTHER_PROTOCOL.exec(text) ?? [];
  if (given !== undefined && protocol !== undefined) {
    const rest = stepsOf(`${before}${text.slice(given.length)}`.trim(), context);
    return [protocolStep({ protocol, negated: not !== undefined }), ...rest];
  }
  const target = targetOf(text);
  return [...opaqueConditions(text, context), ...(target === undefined ? [] : opaqueTarget(target, text, hasChain))];
}

/** Undefined if some part is not understood. */
function parsed(text: string, family: IpFamily): KernelRule | undefined {
  try {
    return parseRuleText(text, family);
  } catch (error) {
    if (error instanceof RuleSyntaxError) return undefined;
    throw error;
  }
}

function conditionSteps(rule: KernelRule, surroundings: Surroundings): Step[] {
  const matches = rule.matches.map((match) => matchStep(match, surroundings));
  return [...basicSteps(rule), ...matches.filter((step) => step !== undefined)];
}

/**
 * The conditions of a rule that is not understood. If only its target is unknown, all conditions count. Otherwise those before the
 * first extension count (tools print addresses, interfaces and the protocol first), and whether the rest holds is a question.
 */
function opaqueConditions(text: string, { family, surroundings }: RuleContext): Step[] {
  const before = (option: RegExp) => {
    const end = withoutQuoted(text).search(option);
    return parsed(end < 0 ? text : text.slice(0, end), family);
  };
  const whole = before(/(?<!\S)-[jg] /);
  if (whole !== undefined) return conditionSteps(whole, surroundings);
  const leading = before(/(?<!\S)(?:-[mjg] |--)/);
  const question: StepResult = { kind: "unknown", question: `"${text}" matches`, yes: GO_ON, no: NO_MATCH };
  return [
    ...(leading === undefined ? [] : basicSteps(leading)),
    { text: "what follows is not understood", run: () => question },
  ];
}

/** Compiles a target; undefined for a rule that only counts. */
function targetStep(target: KernelTarget, { facts }: Surroundings): Step | undefined {
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
      case "DROP":
      case "RETURN":
        return { kind: "verdict", verdict: VERDICTS[chosen.kind] };
      case "REJECT":
        return { kind: "verdict", verdict: { kind: "reject", answer: chosen.with } };
      case "MARK": {
        const mark = ((packet.mark & ~chosen.mask) ^ chosen.value) >>> 0;
        return { kind: "go-on", packet: { ...packet, mark }, said: `mark 0x${mark.toString(16)}` };
      }
      case "MASQUERADE":
        return masquerade(packet, facts);
      case "REDIRECT": {
        const { ports } = chosen;
        return ports === undefined || ports.from === ports.to
          ? redirect(packet, ports?.from, facts)
          : { kind: "lost", because: `one of the ports ${ports.from} to ${ports.to} is chosen` };
      }
      case "DNAT": {
        const { address, port } = chosen;
        return translated(withDestination(packet, address, port), `dnat to ${endText(address, port)}`);
      }
    }
  }
}

/** The target of a rule that is not understood; it is followed if it is a known word or a chain. */
function opaqueTarget(target: string, text: string, hasChain: (name: string) => boolean): Step[] {
  const act = (run: Step["run"]): Step[] => [{ text: target, asks: [], isAction: true, run }];
  if (target === "NOTRACK" || (target === "CT" && text.includes(" --notrack"))) {
    return act((packet) => ({ kind: "go-on", packet: { ...packet, state: "untracked" }, said: "not tracked" }));
  }
  if (target === "CONNMARK") return act(connmark(text));
  // A later rule may match the entry that it adds.
  if (target === "SET") return [{ text: target, asks: undefined, run: () => GO_ON }];
  const source = parseIpAddress(/ --to-source \[?([0-9a-f.:]+?)\]?(?::[\d-]+)?(?: |$)/.exec(text)?.[1] ?? "");
  if (target === "SNAT" && source !== undefined) {
    return act((packet) => translated(withSource(packet, source), `snat to ${source}`));
  }
  const verdict = verdictOf(target, text, hasChain);
  if (verdict !== undefined) return act(() => verdict);
  const action = iptablesAction(target, text);
  if (action?.kind === "none") return [];
  return act(() => ({ kind: "lost", because: `the target ${target} ${action?.because ?? "is not understood"}` }));
}

/** Matches that write: what they leave is seen by later rules. */
const WRITES = /(?<!\S)-m (?:recent|connlabel|cluster|socket) /;

/** Whether the rule only compares, counts or logs, so that nothing depends on it. */
function isIdleRule(text: string, hasChain: (name: string) => boolean): boolean {
  const target = targetOf(text);
  if (WRITES.test(withoutQuoted(text)) || /(?<!\S)-j CT .*--notrack/.test(text)) return false;
  return target === undefined || (!hasChain(target) && iptablesAction(target, text)?.kind === "none");
}

const CONNMARK = /-j CONNMARK --(set-x|save-|restore-)mark (?:--nfmask )?0x([0-9a-f]+)(?:\/| --ctmask )0x([0-9a-f]+)$/;

/** `CONNMARK` without the shifts of its revision 2 (net/netfilter/xt_connmark.c, connmark_tg_shift). */
function connmark(text: string): Step["run"] {
  const [, action, first = "", second = ""] = CONNMARK.exec(text) ?? [];
  const [nfBits, ctMask] = [Number.parseInt(first, 16), Number.parseInt(second, 16)];
  if (action === undefined) return () => ({ kind: "lost", because: `"${text}" is not understood` });
  return (packet) => {
    const { value, known } = packet.connectionMark;
    if (!hasConnection(packet)) return NO_CONNECTION;
    if (action !== "restore-") {
      const set = (value & ~ctMask) ^ (action === "set-x" ? nfBits : packet.mark & nfBits);
      return marked(packet, { value: set, known: known | ctMask });
    }
    const restored = (connectionMark: number): StepResult => {
      const mark = ((packet.mark & ~nfBits) ^ (connectionMark & ctMask)) >>> 0;
      const after = marked(packet, { value: connectionMark, known: known | ctMask }).packet;
      return { kind: "go-on", packet: { ...after, mark }, said: `mark ${hex(mark)}` };
    };
    const unknown = (ctMask & ~known) >>> 0;
    if (unknown === 0) return restored(value);
    const isOneBit = (unknown & (unknown - 1)) === 0;
    const yes: StepResult = isOneBit
      ? restored(value | unknown)
      : { kind: "lost", because: "the connection's mark is not known" };
    const question = `the connection's mark has ${isOneBit ? "" : "any of "}${hex(unknown)}`;
    return { kind: "unknown", question, yes, no: restored(value) };
  };
}

function marked(packet: Packet, { value, known }: ConnectionMark) {
  const connectionMark: ConnectionMark = { value: (value & known) >>> 0, known: known >>> 0 };
  const mask = connectionMark.known === ALL_BITS ? "" : `/${hex(connectionMark.known)}`;
  const said = `the connection's mark ${hex(connectionMark.value)}${mask}`;
  return { kind: "go-on", packet: { ...packet, connectionMark }, said } as const;
}

const hex = (mark: number): string => `0x${mark.toString(16)}`;

const VERDICTS = {
  ACCEPT: { kind: "accept" },
  DROP: { kind: "drop" },
  RETURN: { kind: "return" },
} as const satisfies Record<string, Verdict>;

function verdictOf(target: string, text: string, hasChain: (name: string) => boolean): StepResult | undefined {
  const answer = / --reject-with (\S+)/.exec(text)?.[1];
  if (target === "REJECT") return { kind: "verdict", verdict: { kind: "reject", answer } };
  if (target === "ACCEPT" || target === "DROP" || target === "RETURN") {
    return { kind: "verdict", verdict: VERDICTS[target] };
  }
  const words = text.split(" ");
  const kind = words[words.indexOf(target) - 1] === "-g" ? "goto" : "jump";
  return hasChain(target) ? { kind: "verdict", verdict: { kind, chain: target } } : undefined;
}
