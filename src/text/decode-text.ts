/** From the bytes of a file to its text; UTF-16 is recognised by its byte order mark. Does not import the YAML parser. */

/** A text that is not YAML or JSON; the message is the parser's. */
export class TextSyntaxError extends Error {
  override readonly name = "TextSyntaxError";
}

/** A character that YAML may not contain unescaped. */
const NOT_PRINTABLE = /[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/u;

/** Decodes manifests, dumps and others whose readers check the text. */
export function textOf(bytes: Uint8Array): string {
  // The decoder leaves the mark out.
  return new TextDecoder(utf16Of(bytes) ?? "utf-8").decode(bytes);
}

/** The encoding that a byte order mark tells of, as PowerShell's `>` writes it. */
function utf16Of([first, second]: Uint8Array): "utf-16le" | "utf-16be" | undefined {
  if (first === 0xff && second === 0xfe) return "utf-16le";
  return first === 0xfe && second === 0xff ? "utf-16be" : undefined;
}

/**
 * Decodes a configuration file.
 *
 * @throws {@link TextSyntaxError} in the words of upstream's reader.
 */
export function configTextOf(bytes: Uint8Array): string {
  const encoding = utf16Of(bytes);
  if (encoding !== undefined) return checked(utf16(bytes.subarray(2), encoding));
  const text = new TextDecoder("utf-8").decode(bytes);
  if (/^\s*\{/.test(text)) return text;
  try {
    return checked(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    if (error instanceof TextSyntaxError) throw error;
    throw new TextSyntaxError(`yaml: ${utf8Problem(bytes)}`);
  }
}

function utf16(bytes: Uint8Array, encoding: "utf-16le" | "utf-16be"): string {
  if (bytes.length % 2 !== 0) throw new TextSyntaxError("yaml: incomplete UTF-16 character");
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new TextSyntaxError("yaml: incomplete UTF-16 surrogate pair");
  }
}

function checked(text: string): string {
  if (NOT_PRINTABLE.test(text)) throw new TextSyntaxError("yaml: control characters are not allowed");
  return text;
}

/** Why bytes are not UTF-8, in upstream's words. */
function utf8Problem(bytes: Uint8Array): string {
  for (let at = 0; at < bytes.length; ) {
    const width = utf8Width(bytes[at] ?? 0);
    if (width === 0) return "invalid leading UTF-8 octet";
    if (at + width > bytes.length) return "incomplete UTF-8 octet sequence";
    const character = bytes.subarray(at, at + width);
    if (character.subarray(1).some((octet) => (octet & 0xc0) !== 0x80)) return "invalid trailing UTF-8 octet";
    if (isOverlong(character)) return "invalid length of a UTF-8 sequence";
    at += width;
  }
  return "invalid Unicode character";
}

function utf8Width(octet: number): number {
  if (octet < 0x80) return 1;
  if (octet >= 0xc0 && octet < 0xe0) return 2;
  if (octet >= 0xe0 && octet < 0xf0) return 3;
  return octet >= 0xf0 && octet < 0xf8 ? 4 : 0;
}

function isOverlong([lead = 0, next = 0, ...more]: Uint8Array): boolean {
  if (more.length === 0) return lead === 0xc0 || lead === 0xc1;
  return more.length === 1 ? lead === 0xe0 && next < 0xa0 : lead === 0xf0 && next < 0x90;
}
