/**
 * Converts iptables rules between text and typed form: `parseRule` reads what the tools accept, `printRule` writes what
 * iptables-save prints (reference iptables-examples.md §16.2).
 */

import { type Cidr, type IpFamily, isZeroCidr } from "../../../net/ip.ts";
import { isProtocolName, PROTOCOL_NAMES, PROTOCOL_NUMBERS, type ProtocolName } from "../../../net/protocol.ts";
import { isMatchName, type KernelMatch, MATCHES, type MatchKind, printMatch } from "./rule-matches.ts";
import {
  type ExtensionSyntax,
  GivenOptions,
  parseNetwork,
  type RuleContext,
  RuleSyntaxError,
  splitWords,
} from "./rule-options.ts";
import { isTargetName, type KernelTarget, printTarget, TARGETS, type TargetKind } from "./rule-targets.ts";

export interface AddressMatch {
  readonly cidr: Cidr;
  readonly negated: boolean;
}

export interface InterfaceMatch {
  /** Ends in `+` to match every interface with that prefix. */
  readonly name: string;
  readonly negated: boolean;
}

/** Protocols that rules of any author may match. */
type RuleProtocol = ProtocolName | "icmp" | "ipv6-icmp";
const RULE_PROTOCOLS: readonly RuleProtocol[] = [...PROTOCOL_NAMES, "icmp", "ipv6-icmp"];

interface ProtocolMatch {
  readonly protocol: RuleProtocol;
  readonly negated: boolean;
}

/** What a rule compares without a match extension. */
interface BasicMatches {
  source: AddressMatch | undefined;
  destination: AddressMatch | undefined;
  inInterface: InterfaceMatch | undefined;
  outInterface: InterfaceMatch | undefined;
  protocol: ProtocolMatch | undefined;
}
type BasicField = keyof BasicMatches;

/**
 * A rule of any author, as the kernel holds it: the in-memory kernel stores it and the tracer interprets it. Covers
 * more than `rule.ts`, which describes the rules of our planners.
 */
export interface KernelRule extends Readonly<BasicMatches> {
  /** In evaluation order. */
  readonly matches: readonly KernelMatch[];
  readonly target: KernelTarget;
}

/** Longest chain name, in characters. */
const CHAIN_NAME_LIMIT = 28;
const INTERFACE_NAME_LIMIT = 15;

/** A match or target with the options that the rule gives it. */
interface Loaded<Name extends string> {
  readonly name: Name;
  readonly syntax: ExtensionSyntax<unknown>;
  readonly given: GivenOptions;
}

/** What `-j` or `-g` names: a target with options, or a chain. */
type LoadedTarget = Loaded<TargetKind> | Extract<KernelTarget, { readonly kind: "jump" | "goto" }>;

/** The spellings of their options, the tools' own first; in the order in which the tools print them. */
const BASICS: { readonly [K in BasicField]: readonly [spellings: readonly string[], read: BasicReader<K>] } = {
  source: [["-s", "--source", "--src"], addressMatch],
  destination: [["-d", "--destination", "--dst"], addressMatch],
  inInterface: [["-i", "--in-interface"], interfaceMatch],
  outInterface: [["-o", "--out-interface"], interfaceMatch],
  protocol: [["-p", "--protocol", "--proto"], protocolMatch],
};
/** @returns undefined for what every packet matches. */
type BasicReader<K extends BasicField> = (value: string, negated: boolean, family: IpFamily) => BasicMatches[K];
const FIELDS = Object.keys(BASICS) as BasicField[]; // the table's own keys
const FIELD_OF = new Map(FIELDS.flatMap((field) => BASICS[field][0].map((word) => [word, field] as const)));

class RuleReader {
  readonly #words: readonly string[];
  readonly #family: IpFamily;
  #at = 0;
  #negated = false;
  readonly #basics: BasicMatches = {
    ...{ source: undefined, destination: undefined, inInterface: undefined, outInterface: undefined },
    protocol: undefined,
  };
  readonly matches: Loaded<MatchKind>[] = [];
  target: LoadedTarget | undefined;
  readonly #seen = new Set<string>();

  constructor(words: readonly string[], family: IpFamily) {
    this.#words = words;
    this.#family = family;
  }

  read(): KernelRule {
    for (; this.#at < this.#words.length; this.#at += 1) this.#readOption(this.#words[this.#at] ?? "");
    if (this.#negated) throw new RuleSyntaxError("bad_argument", "nothing follows the last !");
    const { protocol } = this.#basics;
    const context: RuleContext = {
      family: this.#family,
      protocol: protocol === undefined || protocol.negated ? undefined : protocol.protocol,
    };
    const matches = this.matches.map(({ name, given }): KernelMatch => MATCHES[name].build(given, context));
    return { ...this.#basics, matches, target: this.#buildTarget(context) };
  }

  #buildTarget(context: RuleContext): KernelTarget {
    const { target } = this;
    if (target === undefined) return { kind: "none" };
    return "kind" in target ? target : TARGETS[target.name].build(target.given, context);
  }

  #readOption(word: string): void {
    if (word === "!") {
      if (this.#negated) throw new RuleSyntaxError("bad_argument", "two ! in a row");
      this.#negated = true;
      return;
    }
    const field = FIELD_OF.get(word);
    if (field !== undefined) this.#readBasic(field, word);
    else if (word === "-m" || word === "--match") this.#load(this.#valueOf(word));
    else if (word === "-j" || word === "--jump") this.target = namedTarget(this.#valueOf(word, "target"));
    else if (word === "-g" || word === "--goto") this.target = chainTarget("goto", this.#valueOf(word, "target"));
    else if (word.startsWith("-")) this.#readExtensionOption(word);
    else throw new RuleSyntaxError("bad_argument", `bad argument ${JSON.stringify(word)}`);
    this.#negated = false;
  }

  #value(option: string): string {
    this.#at += 1;
    const value = this.#words[this.#at];
    if (value === undefined) throw new RuleSyntaxError("missing_value", `option "${option}" needs a value`);
    return value;
  }

  #readBasic<K extends BasicField>(field: K, word: string): void {
    const value = this.#value(word);
    this.#refuseAnother(field, word);
    this.#basics[field] = BASICS[field][1](value, this.#negated, this.#family);
  }

  /** The value of an option that cannot be inverted. @param slot what a rule has once */
  #valueOf(word: string, slot?: string): string {
    const value = this.#value(word);
    if (slot !== undefined) this.#refuseAnother(slot, word);
    this.#refuseNegation(word);
    return value;
  }

  #refuseAnother(slot: string, word: string): void {
    if (this.#seen.has(slot)) throw new RuleSyntaxError("bad_argument", `multiple ${word} flags not allowed`);
    this.#seen.add(slot);
  }

  #refuseNegation(word: string): void {
    if (this.#negated) throw new RuleSyntaxError("bad_argument", `option "${word}" cannot be inverted`);
  }

  #load(name: string): Loaded<MatchKind> {
    if (!isMatchName(name)) throw new RuleSyntaxError("unknown_match", `match ${JSON.stringify(name)} is not known`);
    // A rule has one match for its protocol's ports, even if `-m` names it several times.
    const ports = isProtocolName(name) ? this.matches.find((match) => match.name === name) : undefined;
    if (ports !== undefined) return ports;
    const loaded = { name, syntax: MATCHES[name], given: new GivenOptions(name) };
    this.matches.push(loaded);
    return loaded;
  }

  #readExtensionOption(word: string): void {
    const extension = this.#extensionWith(word);
    if (extension === undefined) throw new RuleSyntaxError("unknown_option", `unknown option "${word}"`);
    const { syntax, given } = extension;
    const option = optionOf(syntax, word);
    if (syntax.invertible?.includes(option) !== true) this.#refuseNegation(word);
    const values = Array.from({ length: syntax.options[option] ?? 0 }, () => this.#value(word));
    given.add(option, { value: values.join(" "), negated: this.#negated });
  }

  /** The latest match, or the target, that has the option; otherwise the protocol's own match, which `-p` implies. */
  #extensionWith(word: string): Loaded<string> | undefined {
    const knows = (syntax: ExtensionSyntax<unknown>): boolean => Object.hasOwn(syntax.options, optionOf(syntax, word));
    const { target } = this;
    const loaded = this.matches.findLast(({ syntax }) => knows(syntax));
    if (loaded !== undefined) return loaded;
    if (target !== undefined && "syntax" in target && knows(target.syntax)) return target;
    const implied = this.#basics.protocol?.protocol;
    if (implied === undefined || !isProtocolName(implied)) return undefined;
    return knows(MATCHES[implied]) ? this.#load(implied) : undefined;
  }
}

const optionOf = ({ aliases }: ExtensionSyntax<unknown>, word: string): string => aliases?.[word] ?? word;

function addressMatch(value: string, negated: boolean, family: IpFamily): AddressMatch | undefined {
  const cidr = parseNetwork(value, family);
  if (!isZeroCidr(cidr)) return { cidr, negated };
  if (negated) throw new RuleSyntaxError("bad_value", `! ${value} matches nothing`);
  return undefined;
}

function interfaceMatch(name: string, negated: boolean): InterfaceMatch | undefined {
  if (name === "" || name.length > INTERFACE_NAME_LIMIT || /[\s/]/.test(name)) {
    throw new RuleSyntaxError("bad_value", `interface name ${JSON.stringify(name)} is not valid`);
  }
  if (name !== "+") return { name, negated };
  if (negated) throw new RuleSyntaxError("bad_value", "! + matches no interface");
  return undefined;
}

/** Alternative spellings of protocols. */
const PROTOCOL_ALIASES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(PROTOCOL_NAMES.map((name) => [`${PROTOCOL_NUMBERS[name]}`, name])),
  "0": "all",
  "1": "icmp",
  "58": "ipv6-icmp",
  icmpv6: "ipv6-icmp",
};

function protocolMatch(text: string, negated: boolean): ProtocolMatch | undefined {
  const name = PROTOCOL_ALIASES[text] ?? text.toLowerCase();
  if (name === "all" && !negated) return undefined;
  const protocol = RULE_PROTOCOLS.find((known) => known === name);
  if (protocol === undefined) throw new RuleSyntaxError("bad_value", `protocol ${JSON.stringify(text)} is not known`);
  return { protocol, negated };
}

function namedTarget(name: string): LoadedTarget {
  if (!isTargetName(name)) return chainTarget("jump", name);
  return { name, syntax: TARGETS[name], given: new GivenOptions(name) };
}

function chainTarget(kind: "jump" | "goto", chain: string): LoadedTarget {
  checkChainName(chain);
  return { kind, chain };
}

/** Throws {@link RuleSyntaxError} if no chain can have this name. */
export function checkChainName(name: string): void {
  if (name.length === 0 || name.length > CHAIN_NAME_LIMIT || /^[-!]|[\s"'\\]/.test(name)) {
    throw new RuleSyntaxError(
      "bad_value",
      `chain name ${JSON.stringify(name)} is not valid: 1 to ${CHAIN_NAME_LIMIT} characters without blanks and quotes`,
    );
  }
}

/**
 * Parses the match and target words of a rule, without `-A CHAIN`. Throws {@link RuleSyntaxError}.
 * @param words unquoted.
 */
export function parseRule(words: readonly string[], family: IpFamily): KernelRule {
  return new RuleReader(words, family).read();
}

/** {@link parseRule} for a line of text. */
export function parseRuleText(text: string, family: IpFamily): KernelRule {
  return parseRule(splitWords(text), family);
}

/** The words of a rule as iptables-save prints them after `-A CHAIN`. */
export function printRule(rule: KernelRule): string {
  const parts: string[] = [];
  for (const field of FIELDS) {
    const match = rule[field];
    if (match === undefined) continue;
    const text = "cidr" in match ? match.cidr : "name" in match ? match.name : match.protocol;
    parts.push(`${match.negated ? "! " : ""}${BASICS[field][0][0]} ${text}`);
  }
  for (const match of rule.matches) parts.push(printMatch(match));
  const target = printTarget(rule.target);
  if (target !== "") parts.push(target);
  return parts.join(" ");
}
