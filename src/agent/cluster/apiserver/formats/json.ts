/** Objects, lists and events in JSON. A watch sends one event per line. */
import { isJsonObject, type JsonObject } from "../../../../model/projection/fields.ts";
import { describeValue } from "../../../../model/projection/findings.ts";
import { BoundedPiece, FormatError } from "./pieces.ts";

/** @throws FormatError */
export function readJson(content: Buffer): unknown {
  const text = content.toString("utf8");
  try {
    return JSON.parse(text);
  } catch (error) {
    throw notJson(text, error);
  }
}

function notJson(text: string, cause?: unknown): FormatError {
  return new FormatError(`not a whole JSON object: ${describeValue(text.slice(0, 80))}`, { cause });
}

/** The largest list: a text has at most 512 MiB, and its objects take several times as much. */
const MAX_LIST_BYTES = 256 * 1_048_576;

/** Reads a list when it is complete, as client-go does. Protobuf, the default, is read while it arrives. */
export class JsonList {
  readonly #text = new BoundedPiece(MAX_LIST_BYTES);

  /** @throws FormatError as soon as the text cannot be a list. */
  push(chunk: Buffer): void {
    const start = chunk.toString("utf8", 0, 80);
    if (this.#text.bytes === 0 && !/^\s*(?:\{|$)/.test(start)) throw notJson(start);
    this.#text.add(chunk);
  }

  /** The whole list. @throws FormatError if the text is truncated or not JSON. */
  end(): JsonObject {
    const list = readJson(this.#text.take(Buffer.alloc(0)));
    if (!isJsonObject(list)) throw notJson("");
    return list;
  }
}

const NEWLINE = 0x0a;

export class JsonLines {
  readonly #line = new BoundedPiece();
  readonly #onLine: (line: Buffer) => void;

  /** @param onLine called for each non-empty line. */
  constructor(onLine: (line: Buffer) => void) {
    this.#onLine = onLine;
  }

  /** Bytes of the current incomplete line. */
  get pendingBytes(): number {
    return this.#line.bytes;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      // A blank line allocates no Buffer: a chunk may consist of them.
      if (end > start || this.#line.bytes > 0) this.#onLine(this.#line.take(chunk.subarray(start, end)));
      start = end + 1;
    }
    if (start < chunk.length) this.#line.add(chunk.subarray(start));
  }
}
