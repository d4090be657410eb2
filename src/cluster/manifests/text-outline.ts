/**
 * Tells a file that is still being written (or whose writer died) from one that was shortened on purpose, without
 * keeping its text: a cut-off text agrees with the earlier one line by line and then ends inside a line.
 */

/** What is remembered of a text: 8 bytes per line. */
export interface TextOutline {
  readonly length: number;
  readonly endsWithLineBreak: boolean;
  /** Per line: FNV-1a hash of the whole text up to the line's end. */
  readonly hashes: Uint32Array;
  /** Per line: its length. */
  readonly lengths: Uint32Array;
}

const LINE_BREAK = 10;
const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/** Makes the outline of a text. Pure. */
export function outlineOf(text: string): TextOutline {
  const hashes: number[] = [];
  const lengths: number[] = [];
  let hash = FNV_OFFSET;
  let lineStart = 0;
  for (let index = 0; index <= text.length; index++) {
    const code = index < text.length ? text.charCodeAt(index) : LINE_BREAK;
    if (code === LINE_BREAK) {
      hashes.push(hash >>> 0);
      lengths.push(index - lineStart);
      lineStart = index + 1;
    }
    hash = Math.imul(hash ^ code, FNV_PRIME);
  }
  return {
    length: text.length,
    endsWithLineBreak: text.endsWith("\n"),
    hashes: Uint32Array.from(hashes),
    lengths: Uint32Array.from(lengths),
  };
}

/**
 * Whether `now`, found in the same file, is a piece of `before` that ends inside a line (an empty text counts too). In
 * the last line of a text without a final line break it is taken for an edit: such writers shorten that line on purpose. Pure.
 */
export function isCutOff(before: TextOutline, now: TextOutline): boolean {
  if (now.length >= before.length) return false;
  if (now.length === 0) return true;
  if (now.endsWithLineBreak) return false;
  const last = now.hashes.length - 1;
  const isSameUpToLast = last === 0 || now.hashes[last - 1] === before.hashes[last - 1];
  const isLastShorter = (now.lengths[last] ?? 0) < (before.lengths[last] ?? 0);
  const isInLastLine = last === before.hashes.length - 1;
  return isSameUpToLast && isLastShorter && !isInLastLine;
}
