/** The pieces into which a response is split while it arrives, so that it is never in memory as a whole. */

/**
 * Larger objects are not read. By default an API server accepts requests of 3 MiB, and etcd stores 1.5 MiB. The worst
 * JSON text of this size, an array of empty objects, blocks the event loop for 0.3 s.
 */
export const MAX_OBJECT_BYTES = 4 * 1_048_576;
/** Protobuf has the names first, so this much of an oversized piece identifies it. */
const HEAD_BYTES = 16_384;

/** The bytes are not in the format of the response. */
export class FormatError extends Error {
  override readonly name = "FormatError";
}

/** The bytes may be in the format but are truncated. */
export class CutError extends FormatError {}

/** A whole piece, or the digest of an oversized one. */
export interface Piece {
  readonly content: Buffer;
  readonly bytes: number;
  readonly isWhole: boolean;
}

/** An object of a list, or an event of a watch. */
export interface Item {
  /** As from `JSON.parse`; only the identity of an oversized object; undefined if it cannot be read. */
  readonly value: unknown;
  /** Why the value is incomplete. */
  readonly problem?: string;
}

/** @param read throws a FormatError for content that cannot be read. */
export function itemOf({ content, bytes, isWhole }: Piece, read: (content: Buffer, isWhole: boolean) => unknown): Item {
  try {
    const value = read(content, isWhole);
    return isWhole ? { value } : { value, problem: `it has ${bytes} bytes, more than ${MAX_OBJECT_BYTES}` };
  } catch (error) {
    if (error instanceof FormatError) return { value: undefined, problem: error.message };
    throw error;
  }
}

/** Takes the bytes of an oversized piece, and keeps what identifies it. */
export interface Digest {
  add(part: Buffer): void;
  end(): Buffer;
}

class Head implements Digest {
  #kept = Buffer.alloc(0);

  add(part: Buffer): void {
    const missing = HEAD_BYTES - this.#kept.length;
    if (missing > 0) this.#kept = Buffer.concat([this.#kept, part.subarray(0, missing)]);
  }

  end(): Buffer {
    return this.#kept;
  }
}

/** Collects a piece until it is complete; keeps only a digest of an oversized one. */
export class BoundedPiece {
  readonly #maxBytes: number;
  readonly #newDigest: () => Digest;
  #parts: Buffer[] = [];
  #bytes = 0;
  #digest: Digest | undefined;

  /** @param newDigest for an oversized piece. @default its first bytes */
  constructor(maxBytes: number, newDigest: () => Digest = () => new Head()) {
    this.#maxBytes = maxBytes;
    this.#newDigest = newDigest;
  }

  /** Bytes added since the last piece was taken. */
  get bytes(): number {
    return this.#bytes;
  }

  add(part: Buffer): void {
    this.#bytes += part.length;
    if (this.#digest !== undefined) this.#digest.add(part);
    else this.#parts.push(part);
    if (this.#digest !== undefined || this.#bytes <= this.#maxBytes) return;
    this.#digest = this.#newDigest();
    for (const known of this.#parts) this.#digest.add(known);
    this.#parts = [];
  }

  /** Returns the piece that ends with `last` and starts a new one. */
  take(last: Buffer): Piece {
    if (this.#bytes === 0 && last.length <= this.#maxBytes) {
      return { content: last, bytes: last.length, isWhole: true };
    }
    this.add(last);
    const content = this.#digest?.end() ?? Buffer.concat(this.#parts);
    const piece = { content, bytes: this.#bytes, isWhole: this.#digest === undefined };
    this.#parts = [];
    this.#bytes = 0;
    this.#digest = undefined;
    return piece;
  }
}
