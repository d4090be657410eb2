/**
 * The identity in the JSON text of an oversized object, found while the text passes. A program between the API server
 * and this one may write the keys in any order, so the metadata may be last.
 */
import { jsonIn } from "../../../../logging/attempt.ts";
import type { Digest } from "./pieces.ts";

interface Wanted {
  readonly [key: string]: Wanted | "text";
}

/** Of an object, and of the event around it. */
const METADATA: Wanted = { metadata: { name: "text", namespace: "text", resourceVersion: "text" } };
const WANTED: Wanted = { ...METADATA, type: "text", object: METADATA };
/** Longer strings are neither a wanted key nor a name. */
const MAX_TEXT = 4_096;

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;
export const OPEN_BRACKET = 0x5b;
export const CLOSE_BRACKET = 0x5d;

export class JsonIdentity implements Digest {
  #root: Record<string, unknown> = {};
  /** The open objects in which something is wanted, outermost first, with what was found. */
  readonly #open: { readonly wanted: Wanted; readonly found: Record<string, unknown> }[] = [];
  /** How many objects and arrays are open inside of these. */
  #unwanted = 0;
  /** The key whose value comes next, in the innermost of the wanted objects. */
  #key: string | undefined;
  /** The current string, outside of what is unwanted; only ASCII matters. */
  #text = "";
  #isInString = false;
  #isEscaped = false;

  add(part: Buffer): void {
    let start = 0;
    for (let at = 0; at < part.length; at++) {
      const byte = part[at];
      if (this.#isInString) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) {
          this.#isInString = false;
          if (this.#unwanted === 0) this.#endString(part.subarray(start, at));
        }
      } else if (byte === QUOTE) {
        this.#isInString = true;
        start = at + 1;
      } else if (byte === OPEN_BRACE) this.#enter();
      else if (byte === OPEN_BRACKET) this.#unwanted++;
      else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        if (this.#unwanted > 0) this.#unwanted--;
        else this.#open.pop();
      } else if (byte === COMMA && this.#unwanted === 0) this.#key = undefined;
    }
    if (this.#isInString && this.#unwanted === 0) this.#keep(part.subarray(start));
  }

  end(): Buffer {
    return Buffer.from(JSON.stringify(this.#root));
  }

  /** What is wanted at the key. */
  #wanted(): Wanted | "text" | undefined {
    const wanted = this.#open.at(-1)?.wanted;
    return wanted !== undefined && this.#key !== undefined && Object.hasOwn(wanted, this.#key)
      ? wanted[this.#key]
      : undefined;
  }

  #enter(): void {
    const around = this.#open.at(-1);
    const wanted = around === undefined ? WANTED : this.#wanted();
    if (this.#unwanted > 0 || wanted === undefined || wanted === "text") {
      this.#unwanted++;
      return;
    }
    const found = {};
    if (around === undefined) this.#root = found;
    else around.found[this.#key ?? ""] = found;
    this.#open.push({ wanted, found });
    this.#key = undefined;
  }

  #endString(last: Buffer): void {
    this.#keep(last);
    const text = this.#text.length > MAX_TEXT ? "" : unescaped(this.#text);
    this.#text = "";
    const around = this.#open.at(-1);
    if (around === undefined) return;
    if (this.#key === undefined) this.#key = text;
    else if (this.#wanted() === "text") around.found[this.#key] = text;
  }

  #keep(part: Buffer): void {
    if (this.#text.length <= MAX_TEXT) this.#text += part.toString("latin1", 0, MAX_TEXT + 1);
  }
}

function unescaped(text: string): string {
  return text.includes("\\") ? String(jsonIn(`"${text}"`) ?? "") : text;
}
