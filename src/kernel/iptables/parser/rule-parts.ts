/**
 * Single parts of a printed rule, for who looks at a hundred thousand rules of which any may have matches that are not
 * understood. What stands in quotes is never taken for an option. Pure.
 */

const QUOTED = /"(?:[^"\\]|\\.)*"/g;

/** The rule, as long as it is, with nothing but quotation marks for what stands in quotes. */
export function withoutQuoted(rule: string): string {
  return rule.includes('"') ? rule.replace(QUOTED, (quoted) => '"'.repeat(quoted.length)) : rule;
}

const TARGET = /(?:^| )-[jg] (\S+)/;

/** Where the rule jumps or goes to: a chain, or a target like `DNAT`. */
export function targetOf(rule: string): string | undefined {
  // Only a target with an option in quotes, like a log prefix, stands before the last of them.
  const behind = TARGET.exec(rule.slice(rule.lastIndexOf('"') + 1));
  return (behind ?? TARGET.exec(withoutQuoted(rule)))?.[1];
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
