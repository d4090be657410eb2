/** The pieces into which a response is split while it arrives, so that it is never in memory as a whole. */

/** A larger object or event means that the response is something else. By default etcd stores objects of at most 1.5 MiB. */
export const MAX_OBJECT_BYTES = 64 * 1_048_576;

/** The bytes are not in the format of the response. */
export class FormatError extends Error {
  override readonly name = "FormatError";
}

/** The bytes may be in the format but are truncated. */
export class CutError extends FormatError {}

/** Collects a piece until it is complete. */
export class BoundedPiece {
  readonly #mostBytes: number;
  #parts: Buffer[] = [];
  /** Bytes added since the last piece was taken. */
  bytes = 0;

  constructor(mostBytes = MAX_OBJECT_BYTES) {
    this.#mostBytes = mostBytes;
  }

  /** @throws FormatError if the piece is too large. */
  add(part: Buffer): void {
    this.bytes += part.length;
    if (this.bytes > this.#mostBytes)
      throw new FormatError(`a part of the response has more than ${this.#mostBytes} bytes`);
    this.#parts.push(part);
  }

  /** Returns the piece that ends with `last` and starts a new one. @throws FormatError if it is too large. */
  take(last: Buffer): Buffer {
    this.add(last);
    const [only, ...more] = this.#parts;
    const piece = only !== undefined && more.length === 0 ? only : Buffer.concat(this.#parts);
    this.#parts = [];
    this.bytes = 0;
    return piece;
  }
}
