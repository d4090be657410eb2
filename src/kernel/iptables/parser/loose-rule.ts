/** Rules of other programs, as far as they are understood: each part is read by itself, so that one part does not hide the others. */
import { attempt } from "../../../logging/attempt.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { isMatchName, MATCHES } from "./rule-matches.ts";
import { type ExtensionSyntax, quoteWord, RuleSyntaxError, splitWords } from "./rule-options.ts";
import { type KernelRule, parseRule } from "./rule-syntax.ts";

/** A match, a target or another condition that is not understood, with the words that are not. */
export interface ForeignPart {
  readonly name: string;
  readonly words: readonly string[];
}

/** A rule of another program. */
export interface LooseRule extends Omit<KernelRule, "protocol"> {
  readonly protocol: { readonly protocol: string; readonly negated: boolean } | undefined;
  readonly foreign: readonly ForeignPart[];
  /** If there is one, `target` is none. */
  readonly foreignTarget: ForeignPart | undefined;
}

/** Reads a rule as iptables-save or `iptables -S` prints it, without `-A CHAIN`. Throws {@link RuleSyntaxError} for an open quote. */
export function parseLoosely(text: string, family: IpFamily): LooseRule {
  const words = splitWords(text);
  const whole = understood(words, family);
  if (whole !== undefined) return { ...whole, foreign: [], foreignTarget: undefined };
  let rule: LooseRule = { ...parseRule([], family), foreign: [], foreignTarget: undefined };
  const extensions = words.findIndex((word) => EXTENSION.test(word));
  const end = extensions < 0 ? words.length : extensions;
  for (const part of partsOf(words.slice(0, end), BASIC)) rule = withBasic(rule, part, family);
  for (const part of partsOf(words.slice(end), EXTENSION)) rule = withExtension(rule, part, family);
  return rule;
}

/** The words of a part as the tools print them. */
export function foreignText({ name, words }: ForeignPart): string {
  return [name, ...words.map((word) => (word === "!" || /^-|^[\w.:,/]+$/.test(word) ? word : quoteWord(word)))].join(
    " ",
  );
}

/** Tools print matches and the target behind all other conditions. */
const EXTENSION = /^-[mjg]$/;
const BASIC = /^-[a-z]$/;

/** A part begins at such a word, or at the `!` before it. */
function partsOf(words: readonly string[], begins: RegExp): string[][] {
  const parts: string[][] = [];
  for (const [index, word] of words.entries()) {
    const isNegated = begins.test(word) && words[index - 1] === "!";
    const isBegin = isNegated ? false : begins.test(word) || (word === "!" && begins.test(words[index + 1] ?? ""));
    const last = parts.at(-1);
    if (last === undefined || isBegin) parts.push([word]);
    else last.push(word);
  }
  return parts;
}

function understood(words: readonly string[], family: IpFamily): KernelRule | undefined {
  return attempt(() => parseRule(words, family), RuleSyntaxError);
}

function withBasic(rule: LooseRule, part: readonly string[], family: IpFamily): LooseRule {
  const negated = part[0] === "!";
  const [option = "", value = ""] = negated ? part.slice(1) : part;
  if (option === "-c") return rule; // Counters of iptables -S -v.
  const read = understood(part, family);
  if (option === "-p")
    return { ...rule, protocol: read?.protocol ?? (read === undefined ? { protocol: value, negated } : undefined) };
  if (read === undefined)
    return withForeign(rule, { name: part.slice(0, negated ? 2 : 1).join(" "), words: part.slice(negated ? 2 : 1) });
  const [source, destination] = [read.source ?? rule.source, read.destination ?? rule.destination];
  const [inInterface, outInterface] = [read.inInterface ?? rule.inInterface, read.outInterface ?? rule.outInterface];
  return { ...rule, source, destination, inInterface, outInterface };
}

function withExtension(rule: LooseRule, part: readonly string[], family: IpFamily): LooseRule {
  const [option = "", name = "", ...words] = part;
  const { protocol } = rule;
  const context = protocol === undefined || protocol.negated ? [] : ["-p", protocol.protocol];
  const readWith = (own: readonly string[]) => understood([...context, ...own], family) ?? understood(own, family);
  const read = readWith(part);
  if (option !== "-m")
    return read === undefined ? { ...rule, foreignTarget: { name, words } } : { ...rule, target: read.target };
  if (read !== undefined) return { ...rule, matches: [...rule.matches, ...read.matches] };
  const foreign = (rest: readonly string[]) => withForeign(rule, { name, words: rest });
  if (!isMatchName(name)) return foreign(words);
  const { options, aliases = {} }: Pick<ExtensionSyntax<never>, "options" | "aliases"> = MATCHES[name];
  const groups = partsOf(words, /^--/);
  const isKnown = (group: readonly string[]) => {
    const word = group.find((one) => one !== "!") ?? "";
    return Object.hasOwn(options, aliases[word] ?? word);
  };
  const known = readWith([option, name, ...groups.filter(isKnown).flat()]);
  if (known === undefined) return foreign(words);
  const { matches, ...rest } = foreign(groups.filter((group) => !isKnown(group)).flat());
  return { ...rest, matches: [...matches, ...known.matches] };
}

function withForeign(rule: LooseRule, part: ForeignPart): LooseRule {
  return { ...rule, foreign: [...rule.foreign, part] };
}
