/** Where the documents of a YAML text begin and end, found without parsing them: each can then be refused on its own. */

/** The text of one document. */
export interface DocumentText {
  /** Where it begins in the file, counted from 1. */
  readonly line: number;
  readonly text: string;
}

const MARKER = /^(?:---|\.\.\.)(?=[ \t\r\n]|$)/;
/** Neither content nor a marker: a directive before a document, a comment, nothing. */
const NO_CONTENT = /^(?:%.*|[ \t]*(?:#.*)?)\r?$/;

/**
 * Cuts a stream at its document markers, which YAML allows in no scalar. Comments and directives go with the document
 * that follows, or with the last one. Pure.
 */
export function* splitDocuments(stream: string): Generator<DocumentText> {
  let start = 0;
  let startLine = 1;
  let line = 1;
  /** `---` or content has been seen since `start`. */
  let isBegun = false;
  for (let at = 0; at < stream.length; line++) {
    const lineBreak = stream.indexOf("\n", at);
    const next = lineBreak < 0 ? stream.length : lineBreak + 1;
    // Nothing else can be a marker, and lines may be megabytes long.
    const marker = stream[at] === "-" || stream[at] === "." ? MARKER.exec(stream.slice(at, at + 4))?.[0] : undefined;
    if (marker === "---" && isBegun) {
      yield { line: startLine, text: stream.slice(start, at) };
      [start, startLine] = [at, line];
    } else if (marker === "..." && isBegun) {
      yield { line: startLine, text: stream.slice(start, next) };
      [start, startLine] = [next, line + 1];
      isBegun = false;
    }
    if (marker === "---" || (marker === undefined && !isBegun && !isWithoutContent(stream, at, next))) isBegun = true;
    at = next;
  }
  if (isBegun) yield { line: startLine, text: stream.slice(start) };
}

function isWithoutContent(stream: string, start: number, end: number): boolean {
  const first = stream[start];
  if (first === "%" || first === "#") return true;
  return NO_CONTENT.test(stream.slice(start, Math.min(end, start + 1024)).replace(/\n$/, ""));
}
