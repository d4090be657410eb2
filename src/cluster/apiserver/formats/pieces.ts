/** What an answer is cut into while it arrives, so that no answer is ever whole in memory. */

/**
 * Larger objects are not read. An API server takes 3 MiB in a request and etcd keeps 1.5 MiB of it by default. The worst JSON text of
 * this size, an array of empty objects, holds the event loop for 0.3 s.
 */
export const MAX_OBJECT_BYTES = 4 * 1_048_576;
/** How much is kept of a piece that is too large: enough to identify it. */
const HEAD_BYTES = 16_384;

/** Bytes that are not in the format of the answer. */
export class FormatError extends Error {
  override readonly name = "FormatError";
}

/** Bytes that may be in the format, and whose end is missing. */
export class CutError extends FormatError {}

/** A whole piece, or the beginning of one that was too large. */
export interface Piece {
  readonly content: Buffer;
  readonly bytes: number;
  readonly isWhole: boolean;
}

/** An object of a list, or an event of a watch. */
export interface Item {
  /** As `JSON.parse` gives it; of one that is too large, what identifies it; undefined for one that cannot be read. */
  readonly value: unknown;
  /** Why it is not whole. */
  readonly problem?: string;
}

/** @param read throws a FormatError for what cannot be read. */
export function itemOf({ content, bytes, isWhole }: Piece, read: (content: Buffer, isWhole: boolean) => unknown): Item {
  try {
    const value = read(content, isWhole);
    return isWhole ? { value } : { value, problem: `it has ${bytes} bytes, more than ${MAX_OBJECT_BYTES}` };
  } catch (error) {
    if (error instanceof FormatError) return { value: undefined, problem: error.message };
    throw error;
  }
}

/** A piece that is collected until it is whole, unless it grows beyond all reason. */
export class BoundedPiece {
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
      return { content: last, bytes: last.length, isWhole: true };
    }
    this.add(last);
    const piece = { content: Buffer.concat(this.#parts), bytes: this.#bytes, isWhole: this.#bytes <= this.#maxBytes };
    this.#parts = [];
    this.#bytes = 0;
    return piece;
  }
}
