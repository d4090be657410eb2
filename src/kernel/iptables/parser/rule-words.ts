/** Lines of iptables-restore and iptables-save as words. Pure. */

type RuleSyntaxCode =
  | "bad_quotes"
  | "bad_argument"
  | "bad_value"
  | "missing_value"
  | "unknown_match"
  | "unknown_option";

/** Text that is no rule, or one with a match or an option that is not understood. */
export class RuleSyntaxError extends Error {
  override readonly name = "RuleSyntaxError";
  readonly code: RuleSyntaxCode;
  constructor(code: RuleSyntaxCode, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Splits a line the way iptables-restore does: at blanks and tabs; a word in double quotes may have blanks; a backslash
 * takes the next character as it is. Single quotes mean nothing. Throws {@link RuleSyntaxError} `bad_quotes`.
 */
export function splitWords(line: string): string[] {
  if (!line.includes('"') && !line.includes("\\")) return line.split(/[ \t]+/).filter((word) => word !== "");
  const words: string[] = [];
  let word: string | undefined;
  let quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at] ?? "";
    if (char === "\\" && at + 1 < line.length) {
      at += 1;
      word = (word ?? "") + (line[at] ?? "");
    } else if (char === '"') {
      quoted = !quoted;
      word ??= "";
    } else if (!quoted && (char === " " || char === "\t")) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else {
      word = (word ?? "") + char;
    }
  }
  if (quoted) throw new RuleSyntaxError("bad_quotes", `a double quote is not closed: ${line}`);
  if (word !== undefined) words.push(word);
  return words;
}

const NEEDS_NO_QUOTES = /^[A-Za-z0-9_-]+$/;

/** One word as iptables-save prints user text: quoted unless it has only letters, digits, `-` and `_`. Pure. */
export function quoteWord(word: string): string {
  return NEEDS_NO_QUOTES.test(word) ? word : `"${word.replace(/["\\']/g, "\\$&")}"`;
}
