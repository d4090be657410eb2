/** A stream of JSON values, one per line, as the API server writes watches. A line counts once it has ended. */
import { BoundedText, type Piece } from "../connection/bounded-text.ts";

const NEWLINE = 0x0a;

export class JsonLines {
  readonly #line: BoundedText;
  readonly #onLine: (line: Piece) => void;

  /** @param onLine called for each line that is not empty. */
  constructor(maxLineBytes: number, onLine: (line: Piece) => void) {
    this.#line = new BoundedText(maxLineBytes);
    this.#onLine = onLine;
  }

  /** Bytes of a line that has not ended. */
  get pendingBytes(): number {
    return this.#line.bytes;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      // A blank line costs no Buffer: a chunk may be made of them.
      if (end > start || this.#line.bytes > 0) this.#onLine(this.#line.take(chunk.subarray(start, end)));
      start = end + 1;
    }
    if (start < chunk.length) this.#line.add(chunk.subarray(start));
  }
}
