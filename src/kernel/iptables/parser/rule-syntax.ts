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

export interface ProtocolMatch {
  readonly protocol: RuleProtocol;
  readonly negated: boolean;
}

/**
 * A rule of any author, as the kernel holds it: the in-memory kernel stores it and the tracer interprets it. Covers
 * more than `rule.ts`, which describes the rules of our planners.
 */
export interface KernelRule {
  readonly source: AddressMatch | undefined;
  readonly destination: AddressMatch | undefined;
  readonly inInterface: InterfaceMatch | undefined;
  readonly outInterface: InterfaceMatch | undefined;
  readonly protocol: ProtocolMatch | undefined;
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

type BasicOption = "s" | "d" | "i" | "o" | "p" | "m" | "j" | "g";
const SPELLINGS: Readonly<Record<BasicOption, readonly string[]>> = {
  s: ["-s", "--source", "--src"],
  d: ["-d", "--destination", "--dst"],
  i: ["-i", "--in-interface"],
  o: ["-o", "--out-interface"],
  p: ["-p", "--protocol", "--proto"],
  m: ["-m", "--match"],
  j: ["-j", "--jump"],
  g: ["-g", "--goto"],
};
const BASIC_OPTIONS: ReadonlyMap<string, BasicOption> = new Map(
  (["s", "d", "i", "o", "p", "m", "j", "g"] as const).flatMap((option) =>
    SPELLINGS[option].map((word) => [word, option] as const),
  ),
);

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
    return "kind" in target ? target : TARGETS[target.name].build(target.given, context);
  }

  #readOption(word: string): void {
    if (word === "!") {
      if (this.#negated) throw new RuleSyntaxError("bad_argument", "two ! in a row");
      this.#negated = true;
      return;
    }
    const basic = BASIC_OPTIONS.get(word);
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

  #readBasic(option: BasicOption, word: string): void {
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
    const implied = this.protocol?.protocol;
    if (implied === undefined || !isProtocolName(implied)) return undefined;
    return knows(MATCHES[implied]) ? this.#load(implied) : undefined;
  }
}

const optionOf = ({ aliases }: ExtensionSyntax<unknown>, word: string): string => aliases?.[word] ?? word;

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
  const { source, destination, inInterface, outInterface, protocol } = rule;
  const basic = (option: string, match: { readonly negated: boolean } | undefined, text: string | undefined): void => {
    if (match !== undefined) parts.push(`${match.negated ? "! " : ""}${option} ${text}`);
  };
  basic("-s", source, source?.cidr);
  basic("-d", destination, destination?.cidr);
  basic("-i", inInterface, inInterface?.name);
  basic("-o", outInterface, outInterface?.name);
  basic("-p", protocol, protocol?.protocol);
  for (const match of rule.matches) parts.push(printMatch(match));
  const target = printTarget(rule.target);
  if (target !== "") parts.push(target);
  return parts.join(" ");
}
