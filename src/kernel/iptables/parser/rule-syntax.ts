/**
 * iptables rules between text and typed form: `parseRule` reads what the tools accept, `printRule` writes what
 * iptables-save prints (reference iptables-examples.md §16.2). Pure.
 */

import { type IpFamily, isZeroCidr } from "../../../net/ip.ts";
import { isProtocolName, PROTOCOL_NAMES, PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import {
  type AddressMatch,
  type InterfaceMatch,
  type KernelMatch,
  type KernelRule,
  type KernelTarget,
  type MatchTypes,
  type ProtocolMatch,
  RULE_PROTOCOLS,
  type TargetTypes,
} from "./kernel-rule.ts";
import { isMatchName, MATCHES, type MatchSyntax, printMatch } from "./rule-matches.ts";
import { GivenOptions, parseNetwork, type RuleContext, RuleSyntaxError, splitWords } from "./rule-options.ts";
import { isTargetName, printTarget, TARGETS } from "./rule-targets.ts";

/** Longest name of a chain, in characters. */
const CHAIN_NAME_LIMIT = 28;
const INTERFACE_NAME_LIMIT = 15;

/** A part of the rule that has its own options. */
interface Extension {
  readonly options: MatchSyntax<unknown>["options"];
  readonly aliases: Readonly<Record<string, string>>;
  readonly invertible: readonly string[];
  readonly given: GivenOptions;
}

interface LoadedMatch extends Extension {
  readonly name: keyof MatchTypes;
}

interface LoadedTarget extends Extension {
  readonly name: keyof TargetTypes | undefined;
  readonly other: KernelTarget;
}

const BASIC_OPTIONS: Readonly<Record<string, "s" | "d" | "i" | "o" | "p" | "m" | "j" | "g">> = {
  "-s": "s",
  "--source": "s",
  "--src": "s",
  "-d": "d",
  "--destination": "d",
  "--dst": "d",
  "-i": "i",
  "--in-interface": "i",
  "-o": "o",
  "--out-interface": "o",
  "-p": "p",
  "--protocol": "p",
  "--proto": "p",
  "-m": "m",
  "--match": "m",
  "-j": "j",
  "--jump": "j",
  "-g": "g",
  "--goto": "g",
};

/** Reads the words of a rule one by one. */
class RuleReader {
  readonly #words: readonly string[];
  readonly #family: IpFamily;
  #at = 0;
  #negated = false;
  source: AddressMatch | undefined;
  destination: AddressMatch | undefined;
  inInterface: InterfaceMatch | undefined;
  outInterface: InterfaceMatch | undefined;
  protocol: ProtocolMatch | undefined;
  readonly matches: LoadedMatch[] = [];
  target: LoadedTarget | undefined;
  readonly #seen = new Set<string>();

  constructor(words: readonly string[], family: IpFamily) {
    this.#words = words;
    this.#family = family;
  }

  read(): KernelRule {
    for (; this.#at < this.#words.length; this.#at += 1) this.#readOption(this.#words[this.#at] ?? "");
    if (this.#negated) throw new RuleSyntaxError("bad_argument", "nothing follows the last !");
    const { source, destination, inInterface, outInterface, protocol } = this;
    const context: RuleContext = {
      family: this.#family,
      protocol: protocol === undefined || protocol.negated ? undefined : protocol.protocol,
    };
    const matches = this.matches.map(({ name, given }): KernelMatch => MATCHES[name].build(given, context));
    return { source, destination, inInterface, outInterface, protocol, matches, target: this.#buildTarget(context) };
  }

  #buildTarget(context: RuleContext): KernelTarget {
    const { target } = this;
    if (target === undefined) return { kind: "none" };
    return target.name === undefined ? target.other : TARGETS[target.name].build(target.given, context);
  }

  #readOption(word: string): void {
    if (word === "!") {
      if (this.#negated) throw new RuleSyntaxError("bad_argument", "two ! in a row");
      this.#negated = true;
      return;
    }
    const basic = Object.hasOwn(BASIC_OPTIONS, word) ? BASIC_OPTIONS[word] : undefined;
    if (basic !== undefined) this.#readBasic(basic, word);
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

  #readBasic(option: "s" | "d" | "i" | "o" | "p" | "m" | "j" | "g", word: string): void {
    const value = this.#value(word);
    if (option === "m") {
      this.#refuseNegation(word);
      this.#load(value);
      return;
    }
    const slot = option === "g" ? "j" : option;
    if (this.#seen.has(slot)) throw new RuleSyntaxError("bad_argument", `multiple ${word} flags not allowed`);
    this.#seen.add(slot);
    const negated = this.#negated;
    switch (option) {
      case "s":
        this.source = this.#network(value, negated);
        return;
      case "d":
        this.destination = this.#network(value, negated);
        return;
      case "i":
        this.inInterface = interfaceMatch(value, negated);
        return;
      case "o":
        this.outInterface = interfaceMatch(value, negated);
        return;
      case "p":
        this.protocol = protocolMatch(value, negated);
        return;
      default:
        this.#refuseNegation(word);
        this.target = option === "g" ? chainTarget("goto", value) : namedTarget(value);
    }
  }

  #network(value: string, negated: boolean): AddressMatch | undefined {
    const cidr = parseNetwork(value, this.#family);
    if (!isZeroCidr(cidr)) return { cidr, negated };
    if (negated) throw new RuleSyntaxError("bad_value", `! ${value} matches nothing`);
    return undefined;
  }

  #refuseNegation(word: string): void {
    if (this.#negated) throw new RuleSyntaxError("bad_argument", `option "${word}" cannot be inverted`);
  }

  #load(name: string): LoadedMatch {
    if (!isMatchName(name)) throw new RuleSyntaxError("unknown_match", `match ${JSON.stringify(name)} is not known`);
    // A rule has one match for its protocol's ports, however often it is asked for.
    const ports = isProtocolName(name) ? this.matches.find((match) => match.name === name) : undefined;
    if (ports !== undefined) return ports;
    const { options, aliases = {}, invertible = [] } = MATCHES[name];
    const loaded = { name, options, aliases, invertible, given: new GivenOptions(name) };
    this.matches.push(loaded);
    return loaded;
  }

  #readExtensionOption(word: string): void {
    const extension = this.#extensionWith(word);
    if (extension === undefined) throw new RuleSyntaxError("unknown_option", `unknown option "${word}"`);
    const option = extension.aliases[word] ?? word;
    if (!extension.invertible.includes(option)) this.#refuseNegation(word);
    const values = Array.from({ length: extension.options[option] ?? 0 }, () => this.#value(word));
    extension.given.add(option, { value: values.join(" "), negated: this.#negated });
  }

  /** The latest match or the target that has the option; else the protocol's own match, which `-p` brings along. */
  #extensionWith(word: string): Extension | undefined {
    const knows = ({ options, aliases }: Extension): boolean => Object.hasOwn(options, aliases[word] ?? word);
    const loaded = this.matches.findLast(knows);
    if (loaded !== undefined) return loaded;
    if (this.target !== undefined && knows(this.target)) return this.target;
    const implied = this.protocol?.protocol;
    if (implied === undefined || !isProtocolName(implied)) return undefined;
    const { options, aliases = {} } = MATCHES[implied];
    return Object.hasOwn(options, aliases[word] ?? word) ? this.#load(implied) : undefined;
  }
}

function interfaceMatch(name: string, negated: boolean): InterfaceMatch | undefined {
  if (name === "" || name.length > INTERFACE_NAME_LIMIT || /[\s/]/.test(name)) {
    throw new RuleSyntaxError("bad_value", `interface name ${JSON.stringify(name)} is not valid`);
  }
  if (name !== "+") return { name, negated };
  if (negated) throw new RuleSyntaxError("bad_value", "! + matches no interface");
  return undefined;
}

/** Other ways to write a protocol. */
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
  return {
    name,
    other: { kind: "none" },
    options: TARGETS[name].options,
    aliases: {},
    invertible: [],
    given: new GivenOptions(name),
  };
}

function chainTarget(kind: "jump" | "goto", chain: string): LoadedTarget {
  checkChainName(chain);
  return {
    name: undefined,
    other: { kind, chain },
    options: {},
    aliases: {},
    invertible: [],
    given: new GivenOptions(chain),
  };
}

/** Throws {@link RuleSyntaxError} for a name that no chain can have. */
export function checkChainName(name: string): void {
  if (name.length === 0 || name.length > CHAIN_NAME_LIMIT || /^[-!]|[\s"'\\]/.test(name)) {
    throw new RuleSyntaxError(
      "bad_value",
      `chain name ${JSON.stringify(name)} is not valid: 1 to ${CHAIN_NAME_LIMIT} characters without blanks and quotes`,
    );
  }
}

/**
 * Reads the match and target words of a rule, without `-A CHAIN`. Throws {@link RuleSyntaxError}.
 * @param words unquoted.
 */
export function parseRule(words: readonly string[], family: IpFamily): KernelRule {
  return new RuleReader(words, family).read();
}

/** {@link parseRule} for one line of text. */
export function parseRuleText(text: string, family: IpFamily): KernelRule {
  return parseRule(splitWords(text), family);
}

/** The words of a rule as iptables-save prints them after `-A CHAIN`. Pure. */
export function printRule(rule: KernelRule): string {
  const parts: string[] = [];
  const { source, destination, inInterface, outInterface, protocol } = rule;
  if (source !== undefined) parts.push(`${source.negated ? "! " : ""}-s ${source.cidr}`);
  if (destination !== undefined) parts.push(`${destination.negated ? "! " : ""}-d ${destination.cidr}`);
  if (inInterface !== undefined) parts.push(`${inInterface.negated ? "! " : ""}-i ${inInterface.name}`);
  if (outInterface !== undefined) parts.push(`${outInterface.negated ? "! " : ""}-o ${outInterface.name}`);
  if (protocol !== undefined) parts.push(`${protocol.negated ? "! " : ""}-p ${protocol.protocol}`);
  for (const match of rule.matches) parts.push(printMatch(match));
  const target = printTarget(rule.target);
  if (target !== "") parts.push(target);
  return parts.join(" ");
}
