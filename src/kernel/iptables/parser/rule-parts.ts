/**
 * Finds single parts of a printed rule, for callers that read a hundred thousand rules, some with unknown matches. Text
 * in quotes never counts as an option.
 */

const QUOTED = /"(?:[^"\\]|\\.)*"/g;

/** The rule at its original length, with quoted text overwritten by quotation marks. */
export function withoutQuoted(rule: string): string {
  return rule.includes('"') ? rule.replace(QUOTED, (quoted) => '"'.repeat(quoted.length)) : rule;
}

const TARGET = /(?:^| )-[jg] (\S+)/;

/** The target of the rule's jump or goto: a chain, or a target like `DNAT`. */
export function targetOf(rule: string): string | undefined {
  // Only a target with a quoted option, such as a log prefix, comes before the last quote.
  const behind = TARGET.exec(rule.slice(rule.lastIndexOf('"') + 1));
  return (behind ?? TARGET.exec(withoutQuoted(rule)))?.[1];
}

/** The protocol that the rule matches. */
export function protocolOf(rule: string): string | undefined {
  return /(?:^|[^!] )-p (\S+)/.exec(withoutQuoted(rule))?.[1];
}

/** The rule's first comment. */
export function commentOf(rule: string): string | undefined {
  const found = /(?:^| )--comment (?:"((?:[^"\\]|\\.)*)"|(\S+))/.exec(rule);
  return found?.[1]?.replace(/\\(.)/g, "$1") ?? found?.[2];
}
