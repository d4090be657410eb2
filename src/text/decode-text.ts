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

/** Decodes a configuration file. @throws {@link TextSyntaxError} */
export function configTextOf(bytes: Uint8Array): string {
  const encoding = utf16Of(bytes) ?? "utf-8";
  const text = textOf(bytes);
  // As in Go, texts in JSON may be no UTF-8.
  if (encoding === "utf-8" && /^\s*\{/.test(text)) return text;
  try {
    new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new TextSyntaxError(`yaml: the file is not ${encoding.toUpperCase()} text`);
  }
  if (NOT_PRINTABLE.test(text)) throw new TextSyntaxError("yaml: control characters are not allowed");
  return text;
}
