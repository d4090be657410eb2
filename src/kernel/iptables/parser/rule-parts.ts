/**
 * Single parts of a printed rule, for who looks at a hundred thousand rules of which any may have matches that are not
 * understood. What stands in quotes is never taken for an option. Pure.
 */

const QUOTED = /"(?:[^"\\]|\\.)*"/g;

/** The rule, as long as it is, with nothing but quotation marks for what stands in quotes. */
export function withoutQuoted(rule: string): string {
  return rule.includes('"') ? rule.replace(QUOTED, (quoted) => '"'.repeat(quoted.length)) : rule;
}

/** Where the rule jumps or goes to: a chain, or a target like `DNAT`. */
export function targetOf(rule: string): string | undefined {
  const afterQuotes = rule.lastIndexOf('"') + 1;
  const target = targetAfter(rule, afterQuotes);
  // Only a target with an option in quotes, like a log prefix, stands before the last of them.
  return target ?? (afterQuotes === 0 ? undefined : targetAfter(withoutQuoted(rule), 0));
}

/** By searches for fixed text, which take half the time of a pattern: it is asked of every rule of a table. */
function targetAfter(rule: string, from: number): string | undefined {
  const option = from === 0 && JUMP_OR_GOTO.includes(rule.slice(0, 3)) ? -1 : optionAfter(rule, from);
  if (option === undefined) return undefined;
  const start = option + " -j ".length;
  const end = rule.indexOf(" ", start);
  return end < 0 ? rule.slice(start) : rule.slice(start, end);
}

const JUMP_OR_GOTO: readonly string[] = ["-j ", "-g "];

function optionAfter(rule: string, from: number): number | undefined {
  const jump = rule.indexOf(" -j ", from);
  if (jump >= 0) return jump;
  const goto = rule.indexOf(" -g ", from);
  return goto >= 0 ? goto : undefined;
}

/** The protocol that the rule asks for. */
export function protocolOf(rule: string): string | undefined {
  return /(?:^|[^!] )-p (\S+)/.exec(withoutQuoted(rule))?.[1];
}

/** The rule's first comment. */
export function commentOf(rule: string): string | undefined {
  const found = /(?:^| )--comment (?:"((?:[^"\\]|\\.)*)"|(\S+))/.exec(rule);
  return found?.[1]?.replace(/\\(.)/g, "$1") ?? found?.[2];
}
