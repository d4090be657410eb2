/**
 * Formats rules for iptables-restore, with upstream's token order (reference iptables.md §7), so that payloads can be
 * compared line by line.
 */
import type { Rule, RuleMatch, RuleTarget } from "./rule.ts";

/** Longest comment that xt_comment accepts (XT_MAX_COMMENT_LEN minus the terminating zero). */
const COMMENT_LIMIT = 255;
const UNSAFE_IN_COMMENT = /["\\\p{Cc}]/u;
const SAFE_WORD = /^[^\s"'\\\p{Cc}]+$/u;

/** `0x` and eight lower-case hex digits, as upstream writes marks (iptables.md §5.1). */
function markText(mark: number): string {
  return `0x${mark.toString(16).padStart(8, "0")}`;
}

/** Validates one unquoted word of a rule. Throws a RangeError that names it. */
function ruleWord(what: string, text: string): string {
  if (!SAFE_WORD.test(text)) {
    throw new RangeError(
      `${what} ${JSON.stringify(text)} cannot be written into a rule: no blanks, quotes or control characters`,
    );
  }
  return text;
}

function commentWord(text: string): string {
  if (text.length > COMMENT_LIMIT || UNSAFE_IN_COMMENT.test(text)) {
    throw new RangeError(
      `comment ${JSON.stringify(text)} cannot be written into a rule: at most ${COMMENT_LIMIT} characters, no quotes, backslashes or control characters`,
    );
  }
  return text.includes(" ") ? `"${text}"` : ruleWord("comment", text);
}

function not(negate: boolean | undefined): string {
  return negate === true ? "! " : "";
}

function matchText(match: RuleMatch): string {
  switch (match.kind) {
    case "comment":
      return `-m comment --comment ${commentWord(match.text)}`;
    case "protocol":
      return `-m ${match.protocol} -p ${match.protocol}`;
    case "bare-protocol":
      return `-p ${match.protocol}`;
    case "destination-port":
      return `--dport ${match.port}`;
    case "source":
      return `${not(match.negate)}-s ${match.address}`;
    case "destination":
      return `${not(match.negate)}-d ${match.address}`;
    case "in-interface":
      return `${not(match.negate)}-i ${ruleWord("interface name", match.name)}`;
    case "address-type":
      return `-m addrtype ${not(match.negate)}--${match.side === "source" ? "src" : "dst"}-type ${match.type}`;
    case "mark":
      return `-m mark ${not(match.negate)}--mark ${markText(match.value)}/${markText(match.mask)}`;
    case "conntrack-state":
      return `-m conntrack ${not(match.negate)}--ctstate ${match.states.join(",")}`;
    case "state":
      return `-m state --state ${match.states.join(",")}`;
    case "random":
      return `-m statistic --mode random --probability ${match.probability}`;
    case "bytecode":
      return `-m bpf --bytecode "${match.code}"`;
    case "recent-check":
      return `-m recent --name ${match.name} --rcheck --seconds ${match.seconds} --reap`;
    case "recent-set":
      return `-m recent --name ${match.name} --set`;
    case "nfacct":
      return `-m nfacct --nfacct-name ${ruleWord("counter", match.counter)}`;
    case "set":
      return `-m set --match-set ${ruleWord("set", match.name)} ${match.directions.join(",")}`;
    case "bridge-port-in":
      return `-m physdev ${not(match.negate)}--physdev-is-in`;
    case "ipvs":
      return `-m ipvs --vaddr ${match.address} --vproto ${match.protocol} --vport ${match.port}`;
  }
}

function targetText(target: RuleTarget): string {
  switch (target.kind) {
    case "none":
      return "";
    case "jump":
      return ` -j ${target.chain}`;
    case "accept":
    case "drop":
    case "reject":
    case "return":
      return ` -j ${target.kind.toUpperCase()}`;
    case "mark":
      return ` -j MARK --${target.operation}-mark ${markText(target.value)}`;
    case "masquerade":
      return target.randomFully ? " -j MASQUERADE --random-fully" : " -j MASQUERADE";
    case "redirect":
      return ` -j REDIRECT --to-ports ${target.port}`;
    case "dnat":
      return ` -j DNAT --to-destination ${target.to}`;
  }
}

/**
 * The rule without the command that appends, inserts or deletes it: `KUBE-X -m … -j …`.
 *
 * Throws a RangeError for text that could change the meaning of the line.
 */
export function ruleSpec(rule: Rule): string {
  let text: string = rule.chain;
  for (const match of rule.matches) text += ` ${matchText(match)}`;
  return text + targetText(rule.target);
}

/** The words of a rule as process arguments, without the chain; a comment is one unquoted word. */
export function ruleArguments(rule: Rule): string[] {
  const words: string[] = [];
  for (const match of rule.matches) {
    if (match.kind === "comment") words.push("-m", "comment", "--comment", match.text);
    else if (match.kind === "bytecode") words.push("-m", "bpf", "--bytecode", match.code);
    else words.push(...matchText(match).split(" "));
  }
  const target = targetText(rule.target).trim();
  return target === "" ? words : [...words, ...target.split(" ")];
}

const COMMANDS = { append: "-A", insert: "-I" } as const;

/** One iptables-restore line per rule, which appends it or inserts it at the head. Throws as {@link ruleSpec}. */
export function ruleLines(command: keyof typeof COMMANDS, rules: readonly Rule[]): string {
  // join() makes a flat string; a concatenated one is a tree, which a full sync would keep until it is sent.
  return rules.map((rule) => `${COMMANDS[command]} ${ruleSpec(rule)}\n`).join("");
}

/** Creates chains; existing ones are emptied. */
export function chainLines(chains: readonly string[]): string {
  return chains.map((chain) => `:${chain} - [0:0]\n`).join("");
}

/** Deletes empty chains. */
export function deletionLines(chains: readonly string[]): string {
  return chains.map((chain) => `-X ${chain}\n`).join("");
}

export function transactionText(table: string, lines: string): string {
  return `*${table}\n${lines}COMMIT\n`;
}
