/** A piece of a stream that is collected until it is whole, unless it grows beyond all reason. */

/** How much is kept of a piece that is too large: enough to identify it. */
const HEAD_BYTES = 16_384;

/** A whole piece, or the beginning of one that was too large. */
export interface Piece {
  readonly text: string;
  readonly bytes: number;
  readonly isWhole: boolean;
}

export class BoundedText {
  readonly #maxBytes: number;
  #parts: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes added since the last piece was taken. */
  get bytes(): number {
    return this.#bytes;
  }

  add(part: Buffer): void {
    const before = this.#bytes;
    this.#bytes += part.length;
    if (this.#bytes <= this.#maxBytes) this.#parts.push(part);
    else if (before <= this.#maxBytes) this.#parts = [Buffer.concat([...this.#parts, part]).subarray(0, HEAD_BYTES)];
  }

  /** The piece that ends with `last`; afterwards a new one begins. */
  take(last: Buffer): Piece {
    if (this.#bytes === 0 && last.length <= this.#maxBytes) {
      return { text: last.toString("utf8"), bytes: last.length, isWhole: true };
    }
    this.add(last);
    const piece = {
      text: Buffer.concat(this.#parts).toString("utf8"),
      bytes: this.#bytes,
      isWhole: this.#bytes <= this.#maxBytes,
    };
    this.#parts = [];
    this.#bytes = 0;
    return piece;
  }
}
