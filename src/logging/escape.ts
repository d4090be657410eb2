/**
 * Makes text safe for a terminal and for one log line. Object names, error texts of tools and the like are not our own: a
 * control character, a line separator or a direction override in them must not change what the reader sees.
 */

// Everything that Go's strconv.Quote calls non-printable: controls, formats, surrogates, private use, unassigned, separators.
const NON_PRINTABLE = /(?! )[\p{C}\p{Z}]/gu;
const NEEDS_QUOTING = /["\\]|(?! )[\p{C}\p{Z}]/u;
const QUOTE_OR_BACKSLASH = /["\\]/g;
const SHORT_ESCAPES: Readonly<Record<string, string>> = {
  "\x07": "\\a",
  "\b": "\\b",
  "\f": "\\f",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\v": "\\v",
};

function escapeCodePoint(character: string): string {
  const short = SHORT_ESCAPES[character];
  if (short !== undefined) return short;
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x80) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

/** Text in double quotes on one line, spelled as Go's `%q` spells it (reference start.md §2.9). */
export function quoteText(text: string): string {
  if (!NEEDS_QUOTING.test(text)) return `"${text}"`;
  return `"${text.replace(QUOTE_OR_BACKSLASH, "\\$&").replace(NON_PRINTABLE, escapeCodePoint)}"`;
}

/** Only printable ASCII. */
const PLAIN = /^[\x20-\x7e]*$/;

/** One line of a multi-line value: everything non-printable but tabs is escaped; quotes stay as they are. */
export function escapeLine(text: string): string {
  return text.replace(NON_PRINTABLE, (character) => (character === "\t" ? character : escapeCodePoint(character)));
}

/** JSON text whose string contents hold no non-printable character; parses to the same value. */
export function escapeJson(json: string): string {
  // The other expression costs a microsecond per line.
  if (PLAIN.test(json)) return json;
  return json.replace(NON_PRINTABLE, (character) => {
    let escaped = "";
    for (let unit = 0; unit < character.length; unit++) {
      escaped += `\\u${character.charCodeAt(unit).toString(16).padStart(4, "0")}`;
    }
    return escaped;
  });
}
