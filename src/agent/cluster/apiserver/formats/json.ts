/** Objects and events in JSON. A watch sends one event per line. */
import { describeValue } from "../../../../model/projection/findings.ts";
import { JsonIdentity } from "./json-identity.ts";
import { BoundedPiece, FormatError, type Piece } from "./pieces.ts";

/** @throws FormatError */
export function readJson(content: Buffer): unknown {
  const text = content.toString("utf8");
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FormatError(`not a JSON object: ${describeValue(text.slice(0, 80))}`, { cause: error });
  }
}

const NEWLINE = 0x0a;

export class JsonLines {
  readonly #line: BoundedPiece;
  readonly #onLine: (line: Piece) => void;

  /** @param onLine called for each non-empty line. */
  constructor(maxLineBytes: number, onLine: (line: Piece) => void) {
    this.#line = new BoundedPiece(maxLineBytes, () => new JsonIdentity());
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
