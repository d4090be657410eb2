/**
 * `update @map { ip saddr : 10.0.0.1 . 80 }`: nft 1.0.6 has no JSON for statements that fill maps and prints their text
 * instead. Read back here as the JSON that it should be. Pure.
 */

const STATEMENT = /^(add|update|delete) (@[^\s{]+) \{ (.+?)(?: timeout \S+)?(?: : (.+?))? \}$/;

/** The statement's parts as JSON; undefined for other texts. */
export function entryFromText(text: string) {
  const [, op, set, elem, data] = STATEMENT.exec(text) ?? [];
  if (op === undefined || set === undefined || elem === undefined) return undefined;
  return { op, set, elem: concatenation(elem), data: data === undefined ? undefined : concatenation(data) };
}

function concatenation(text: string): unknown {
  const parts = text.split(" . ").map(part);
  return parts.length === 1 ? parts[0] : { concat: parts };
}

function part(text: string): unknown {
  const words = text.split(" ");
  const [first = "", second = ""] = words;
  if (/^\d+$/.test(text)) return Number(text);
  if (words.length === 1) return text;
  if (first === "meta") return { meta: { key: second } };
  if (first === "ct" && (second === "original" || second === "reply")) {
    return { ct: { key: words.slice(2).join(" "), dir: second } };
  }
  if (first === "ct") return { ct: { key: second } };
  return { payload: { protocol: first, field: second } };
}
