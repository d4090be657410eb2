/**
 * Splits the JSON text of a list while it arrives: passes on the text of each element of the top-level `items`, and
 * keeps the rest (such as `metadata`) for the end. A page of 40 MB thus needs the memory of one object, and blocks the
 * event loop for no longer than one chunk takes.
 */
import { isJsonObject, type JsonObject } from "../../../../model/projection/fields.ts";
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  JsonIdentity,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from "./json-identity.ts";
import { BoundedPiece, CutError, FormatError, type Piece } from "./pieces.ts";

const SPACE = 0x20;

const ITEMS_KEY = /"items"\s*:\s*$/;
const MAX_REST_BYTES = 1_048_576;

export class JsonList {
  readonly #onItem: (item: Piece) => void;
  readonly #item: BoundedPiece;
  /** The text outside the items; only its ASCII parts matter. */
  #rest = "";
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  #isInItems = false;
  #isInItem = false;
  #isOver = false;

  constructor(maxItemBytes: number, onItem: (item: Piece) => void) {
    this.#item = new BoundedPiece(maxItemBytes, () => new JsonIdentity());
    this.#onItem = onItem;
  }

  /** @throws FormatError as soon as the text cannot be a list. */
  push(chunk: Buffer): void {
    let start = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] ?? 0;
      if (this.#isInString) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) this.#isInString = false;
        continue;
      }
      if (byte <= SPACE) continue;
      if (this.#isInItems && this.#depth === 2) {
        if (this.#isInItem && (byte === COMMA || byte === CLOSE_BRACKET)) {
          this.#endItem(chunk.subarray(start, at));
          start = at;
        }
        if (byte === CLOSE_BRACKET) {
          this.#isInItems = false;
          this.#depth = 1;
          start = at;
          continue;
        }
        if (byte === COMMA) continue;
        if (!this.#isInItem) {
          this.#isInItem = true;
          start = at;
        }
      }
      if (byte === QUOTE && this.#depth > 0) this.#isInString = true;
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        if (this.#depth === 0 && (byte !== OPEN_BRACE || this.#isOver)) this.#fail(chunk, at);
        this.#depth++;
        if (this.#depth === 2 && byte === OPEN_BRACKET && this.#beginsItems(chunk, start, at)) start = at + 1;
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        this.#depth--;
        if (this.#depth === 0) this.#isOver = true;
        if (this.#depth < 0) this.#fail(chunk, at);
      } else if (this.#depth === 0) this.#fail(chunk, at);
    }
    if (this.#isInItem) this.#item.add(chunk.subarray(start));
    else if (!this.#isInItems) this.#keep(chunk.subarray(start));
  }

  /**
   * Returns everything but the items, with `items` empty.
   *
   * @throws FormatError if the text is truncated or not JSON.
   */
  end(): JsonObject {
    if (!this.#isOver) throw new CutError("the response ends in the middle of the JSON text");
    let value: unknown;
    try {
      value = JSON.parse(this.#rest);
    } catch (error) {
      throw new FormatError("the response is not valid JSON", { cause: error });
    }
    if (!isJsonObject(value)) throw new FormatError("the response is not a JSON object");
    return value;
  }

  #beginsItems(chunk: Buffer, start: number, at: number): boolean {
    const isItems = ITEMS_KEY.test(this.#rest + chunk.toString("latin1", start, at));
    if (!isItems) return false;
    this.#isInItems = true;
    this.#keep(chunk.subarray(start, at + 1));
    return true;
  }

  #endItem(last: Buffer): void {
    this.#isInItem = false;
    this.#onItem(this.#item.take(last));
  }

  #keep(part: Buffer): void {
    this.#rest += part.toString("latin1");
    if (this.#rest.length > MAX_REST_BYTES) throw new FormatError("the response is not a list of objects");
  }

  #fail(chunk: Buffer, at: number): never {
    const near = JSON.stringify(chunk.toString("utf8", at, at + 40));
    throw new FormatError(`the response is not a JSON object: ${near}`);
  }
}
