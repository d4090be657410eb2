/** The words of nft's listings, one after the other. */

/** Text that is not understood. */
export class NftTextError extends Error {
  override readonly name = "NftTextError";
}

const WORD = /"(?:[^"\\]|\\.)*"|[{}]|[^\s"]+/g;

/** Words of a text. A comma or semicolon behind a word is a word; quotes stay, so that names are told from words. */
export function wordsOf(text: string): string[] {
  const words: string[] = [];
  for (const [word] of text.matchAll(WORD)) {
    const last = word.at(-1);
    if (word.length > 1 && (last === "," || last === ";") && !word.startsWith('"')) words.push(word.slice(0, -1), last);
    else words.push(word);
  }
  return words;
}

/** Reads words in order. */
export class WordReader {
  readonly #words: readonly string[];
  #at: number;

  constructor(words: readonly string[], from = 0) {
    this.#words = words;
    this.#at = from;
  }

  get position(): number {
    return this.#at;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#words.length;
  }

  /** The word that comes, or the one after so many. */
  peek(ahead = 0): string | undefined {
    return this.#words[this.#at + ahead];
  }

  /** @throws NftTextError at the end. */
  next(): string {
    const word = this.#words[this.#at];
    if (word === undefined) throw new NftTextError("it ends in the middle");
    this.#at += 1;
    return word;
  }

  /** Takes the word when it is this one. */
  takes(word: string): boolean {
    if (this.peek() !== word) return false;
    this.#at += 1;
    return true;
  }

  /** @throws NftTextError when another word comes. */
  expect(word: string): void {
    const found = this.peek();
    if (!this.takes(word)) throw new NftTextError(`"${word}" was expected, and "${found ?? "the end"}" found`);
  }

  /** Goes back to a {@link position}, and takes all that follows. */
  restFrom(position: number): string {
    this.#at = this.#words.length;
    return this.#words.slice(position).join(" ").replaceAll(" ,", ",");
  }
}

/** The text in quotes; other words as they are. */
export function unquoted(word: string): string {
  return word.startsWith('"') ? word.slice(1, -1) : word;
}
