/** The words of a line of nft's listings, one after the other. */

/** Text that is not understood. */
export class ListingError extends Error {
  override readonly name = "ListingError";
}

const QUOTED = '"[^"]*"?';
/** A range of times is quoted on both sides. Commas inside a word, as in `syn,ack`, belong to it. */
const WORD = new RegExp(`${QUOTED}(?:-${QUOTED})?|[{}();]|[^\\s"{}();]+`, "g");

/** Reads words in order. A comma that ends a word is a word of its own; quotes stay, which tells names from keywords. */
export class WordReader {
  readonly #words: string[];
  #at = 0;

  constructor(text: string) {
    this.#words = (text.match(WORD) ?? []).flatMap((word) =>
      word.length > 1 && word.endsWith(",") ? [word.slice(0, -1), ","] : [word],
    );
  }

  get position(): number {
    return this.#at;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#words.length;
  }

  peek(): string | undefined {
    return this.#words[this.#at];
  }

  /** @throws ListingError at the end. */
  next(): string {
    const word = this.#words[this.#at];
    if (word === undefined) throw new ListingError("it ends in the middle");
    this.#at += 1;
    return word;
  }

  /** Reads the word if it is this one. */
  takes(word: string): boolean {
    if (this.peek() !== word) return false;
    this.#at += 1;
    return true;
  }

  /** Reads the word if it is one of these. */
  takesOf(words: ReadonlySet<string>): string | undefined {
    const word = this.peek();
    return word !== undefined && words.has(word) ? this.next() : undefined;
  }

  /** @throws ListingError if another word follows. */
  expect(word: string): void {
    if (!this.takes(word)) throw new ListingError(`"${word}" was expected, not "${this.peek() ?? "the end"}"`);
  }

  /** @throws ListingError if no number follows. */
  number(): number {
    const word = this.next();
    const value = Number(word);
    if (!/^(?:\d+|0x[\da-f]+)$/i.test(word)) throw new ListingError(`"${word}" is not a number`);
    return value;
  }

  /** Puts back a part of the word just read, to be read again. */
  unread(part: string): void {
    this.#at -= 1;
    this.#words[this.#at] = part;
  }

  /** Goes back to a {@link position} and reads everything from there. */
  restFrom(position: number): string {
    this.#at = this.#words.length;
    return this.#words.slice(position).join(" ").replaceAll(" ,", ",");
  }
}

/** The text in quotes; other words as they are. */
export function unquoted(word: string): string {
  return word.startsWith('"') ? word.slice(1).replace(/"$/, "") : word;
}
