/**
 * What a person at the terminal looks at: which service port is marked, what they filter by, whether they read its details.
 * Keys change it. Knows nothing of terminals.
 */
import type { Block } from "../results.ts";
import { totalsOf } from "../results.ts";

/** A filter that shows what is not as it must be. */
const WRONG_ONLY = "!";

const UP = ["\x1b[A", "\x1bOA", "k"];
const DOWN = ["\x1b[B", "\x1bOB", "j"];
const PAGE_UP = ["\x1b[5~"];
const PAGE_DOWN = ["\x1b[6~", " "];
const ENTER = ["\r", "\n"];
const BACK = ["\x1b", "\x7f", "\b", "\x1b[D", "\x1bOD"];
const ERASE = ["\x7f", "\b"];

/** In the order in which `s` goes through them. */
const ORDERS = ["what is wrong first", "by name", "by type"] as const;

export class Browser {
  /** What is typed after `/`. */
  filter = "";
  isTyping = false;
  isDetailed = false;
  isHelping = false;
  order: (typeof ORDERS)[number] = ORDERS[0];
  /** Lines that the details are scrolled by. */
  scroll = 0;
  #selected: string | undefined;
  #lastChange: string | undefined;
  #shown: readonly string[] = [];
  /** Titles of what was wrong when all had been asked: nothing jumps while answers come. */
  #wrong: ReadonlySet<string> = new Set();
  /** Blocks to move by with one page; told by the one who draws. */
  blocksPerPage = 1;
  linesPerPage = 1;

  /**
   * The blocks that pass the filter, in order; the marked one is always among them, and a change is marked when it comes.
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

  /** Title of the marked block; undefined when nothing is shown. */
  get selected(): string | undefined {
    return this.#selected;
  }

  /** Takes a key. @returns what the program has to do about it, if anything. */
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

  /** Those that are equal stay in the order of their names. */
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

/** Takes apart what a terminal sends at once: keys typed quickly, or text pasted. Pure. */
export function keysOf(input: string): readonly string[] {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what terminals send for cursor keys begins with ESC.
  return input.match(/\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[\s\S]/gu) ?? [];
}
