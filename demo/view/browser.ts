/**
 * The state of the view, which keys change: the marked service port, the filter, and whether its details are open. Knows
 * nothing about terminals.
 */
import type { Block } from "../results.ts";
import { totalsOf } from "../results.ts";

/** The filter for blocks with wrong answers. */
const WRONG_ONLY = "!";

const UP = ["\x1b[A", "\x1bOA", "k"];
const DOWN = ["\x1b[B", "\x1bOB", "j"];
const PAGE_UP = ["\x1b[5~"];
const PAGE_DOWN = ["\x1b[6~", " "];
const ENTER = ["\r", "\n"];
const BACK = ["\x1b", "\x7f", "\b", "\x1b[D", "\x1bOD"];
const ERASE = ["\x7f", "\b"];

/** The orders, in the sequence of the `s` key. */
const ORDERS = ["what is wrong first", "by name", "by type"] as const;

export class Browser {
  /** The text typed after `/`. */
  filter = "";
  isTyping = false;
  isDetailed = false;
  isHelping = false;
  order: (typeof ORDERS)[number] = ORDERS[0];
  /** How many lines the details are scrolled. */
  scroll = 0;
  #selected: string | undefined;
  #lastChange: string | undefined;
  #shown: readonly string[] = [];
  /** Titles of wrong blocks after the last complete pass, so that nothing jumps while answers come. */
  #wrong: ReadonlySet<string> = new Set();
  /** How many blocks one page moves by; set by the drawing code. */
  blocksPerPage = 1;
  linesPerPage = 1;

  /**
   * The blocks that pass the filter, in order; the marked one is always among them. A block that changes becomes the marked one.
   *
   * @param isSettling whether answers to a change are still coming.
   */
  visible(blocks: readonly Block[], isSettling = false): readonly Block[] {
    if (!isSettling) this.#wrong = new Set(blocks.filter(isWrong).map(({ title }) => title));
    const shown = blocks.filter((block) => matches(block, this.filter)).sort((a, b) => this.#compare(a, b));
    const changed = blocks
      .filter(({ isChanged }) => isChanged)
      .map(({ title, fingerprint }) => `${title} ${fingerprint}`)
      .join();
    if (changed !== this.#lastChange) {
      this.#lastChange = changed;
      if (!this.isDetailed) this.#selected = shown.find(({ isChanged }) => isChanged)?.title ?? this.#selected;
    }
    this.#shown = shown.map(({ title }) => title);
    if (this.#selected === undefined || !this.#shown.includes(this.#selected)) [this.#selected] = this.#shown;
    return shown;
  }

  /** Title of the marked block; undefined if no block is shown. */
  get selected(): string | undefined {
    return this.#selected;
  }

  /** Handles a key. @returns what the program has to do, if anything. */
  press(key: string): "quit" | undefined {
    if (key === "\x03") return "quit";
    if (this.isTyping) this.#type(key);
    else if (key === "q") return "quit";
    else if (this.isHelping) this.isHelping = false;
    else if (this.isDetailed) this.#read(key);
    else this.#browse(key);
    return undefined;
  }

  #type(key: string): void {
    if (ENTER.includes(key)) this.isTyping = false;
    else if (key === "\x1b") {
      this.isTyping = false;
      this.filter = "";
    } else if (ERASE.includes(key)) this.filter = [...this.filter].slice(0, -1).join("");
    else if (!/\p{Cc}/u.test(key)) this.filter += key;
  }

  #read(key: string): void {
    if (UP.includes(key)) this.scroll -= 1;
    else if (DOWN.includes(key)) this.scroll += 1;
    else if (PAGE_UP.includes(key)) this.scroll -= this.linesPerPage;
    else if (PAGE_DOWN.includes(key)) this.scroll += this.linesPerPage;
    else if (ENTER.includes(key) || BACK.includes(key)) this.isDetailed = false;
  }

  #browse(key: string): void {
    if (key === "/") this.isTyping = true;
    else if (key === "?") this.isHelping = true;
    else if (key === "s") this.order = ORDERS[(ORDERS.indexOf(this.order) + 1) % ORDERS.length] ?? ORDERS[0];
    else if (key === "\x1b") this.filter = "";
    else if (ENTER.includes(key) && this.#selected !== undefined) {
      this.isDetailed = true;
      this.scroll = 0;
    } else if (UP.includes(key)) this.#move(-1);
    else if (DOWN.includes(key)) this.#move(1);
    else if (PAGE_UP.includes(key)) this.#move(-this.blocksPerPage);
    else if (PAGE_DOWN.includes(key)) this.#move(this.blocksPerPage);
  }

  /** Equal blocks stay in the order of their names. */
  #compare(a: Block, b: Block): number {
    if (this.order === "by name") return 0;
    if (this.order === "by type") return (a.traits[0] ?? "").localeCompare(b.traits[0] ?? "");
    return Number(this.#wrong.has(b.title)) - Number(this.#wrong.has(a.title));
  }

  #move(step: number): void {
    const at = this.#shown.indexOf(this.#selected ?? "");
    this.#selected = this.#shown[Math.min(Math.max(0, at + step), this.#shown.length - 1)];
  }
}

function isWrong(block: Block): boolean {
  return totalsOf([block]).wrong > 0;
}

function matches(block: Block, filter: string): boolean {
  if (filter === WRONG_ONLY) return isWrong(block);
  const text = [
    block.title,
    ...block.traits,
    ...[...block.pods.values()].flatMap((pods) => [...pods.keys()]),
    ...block.rows.flatMap(({ target }) => [target.kind, target.address, `${target.number}`]),
  ];
  return text.join(" ").toLowerCase().includes(filter.toLowerCase());
}

/** Splits terminal input into keys: quick typing and pasted text arrive at once. */
export function keysOf(input: string): readonly string[] {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: terminals send ESC first for cursor keys.
  return input.match(/\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[\s\S]/gu) ?? [];
}
