/** Objects and events in JSON. A watch sends one event per line. */
import { describeValue } from "../../projection/findings.ts";
import { BoundedPiece, FormatError, type Piece } from "./pieces.ts";

/** @param isWhole false: reads only the object's identity. @throws FormatError */
export function readJson(content: Buffer, isWhole = true): unknown {
  const text = content.toString("utf8");
  if (!isWhole) return identityIn(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FormatError(`not a JSON object: ${describeValue(text.slice(0, 80))}`, { cause: error });
  }
}

const EVENT_TYPE = /^\{"type":"(\w+)"/;
// The API server writes the names first in `metadata`, so the head of an oversized object contains them.
const NAMES =
  /"metadata":\{"name":"(?<name>[^"\\]+)",(?:"generateName":"[^"]*",)?(?:"namespace":"(?<namespace>[^"\\]+)",)?(?:"selfLink":"[^"]*",)?(?:"uid":"[^"]*",)?(?:"resourceVersion":"(?<resourceVersion>[^"]+)")?/;

function identityIn(head: string): object {
  const object = { metadata: { ...NAMES.exec(head)?.groups } };
  const type = EVENT_TYPE.exec(head)?.[1];
  return type === undefined ? object : { type, object };
}

const NEWLINE = 0x0a;

export class JsonLines {
  readonly #line: BoundedPiece;
  readonly #onLine: (line: Piece) => void;

  /** @param onLine called for each non-empty line. */
  constructor(maxLineBytes: number, onLine: (line: Piece) => void) {
    this.#line = new BoundedPiece(maxLineBytes);
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
