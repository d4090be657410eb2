/**
 * A terminal that shows one picture, redrawn in place on the alternate screen: a fixed head and foot, and a body that
 * scrolls if it is longer than the terminal. Restores the terminal at the end.
 */
import type { ReadStream, WriteStream } from "node:tty";
import { keysOf } from "./browser.ts";
import { cutLine, type Line, printLine } from "./styled-line.ts";

export interface Picture {
  readonly head: readonly Line[];
  readonly body: readonly Line[];
  readonly foot: readonly Line[];
  /** Lines of the body to keep in view. */
  readonly focus?: { readonly from: number; readonly to: number } | undefined;
}

/** The size of a terminal. */
export interface Size {
  readonly columns: number;
  readonly rows: number;
}

const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
// Terminals with synchronised output show a redraw at once; others ignore these.
const BEGIN_FRAME = "\x1b[?2026h\x1b[H";
const END_FRAME = "\x1b[J\x1b[?2026l";

/** The visible lines of a picture on a terminal of this size. */
export function frameLines(picture: Picture, scroll: number, { columns, rows }: Size): readonly Line[] {
  const room = bodyRows(picture, rows);
  const body = picture.body.slice(scroll, scroll + room);
  // The foot stays at the bottom.
  const gap = Array.from({ length: room - body.length }, (): Line => []);
  return [...picture.head, ...body, ...gap, ...picture.foot].slice(0, rows).map((line) => cutLine(line, columns));
}

/** Rows left for the body. */
export function bodyRows({ head, foot }: Pick<Picture, "head" | "foot">, rows: number): number {
  return Math.max(0, rows - head.length - foot.length);
}

/** The scroll position nearest to the last one that shows the focus, or its start if it is too long. */
export function scrollFor({ head, foot, body, focus }: Picture, last: number, rows: number): number {
  const room = bodyRows({ head, foot }, rows);
  const end = Math.max(0, body.length - room);
  if (focus === undefined) return Math.min(Math.max(0, last), end);
  const lowest = Math.min(focus.to - room, focus.from);
  return Math.min(Math.max(0, Math.min(Math.max(last, lowest), focus.from)), end);
}

/** Owns the terminal from construction to {@link Screen.close}. */
export class Screen {
  readonly #output: WriteStream;
  readonly #input: ReadStream;
  readonly #press: (key: string) => void;
  readonly #hasColour: boolean;
  #draw: (size: Size) => Picture = () => ({ head: [], body: [], foot: [] });
  #scroll = 0;
  #isOpen = true;

  /** @param press gets every key, including Ctrl-C, which raw input does not turn into a signal. */
  constructor(output: WriteStream, input: ReadStream, press: (key: string) => void) {
    this.#output = output;
    this.#input = input;
    this.#press = press;
    this.#hasColour = output.hasColors();
    output.write(ENTER);
    output.on("resize", this.#redraw);
    process.once("exit", this.close);
    if (!input.isTTY) return;
    input.setRawMode(true).setEncoding("utf8").on("data", this.#onKeys).resume();
  }

  /** Replaces the picture; keys and size changes redraw it. */
  show(draw: (size: Size) => Picture): void {
    this.#draw = draw;
    this.#redraw();
  }

  /** Restores the terminal. Safe to call twice. */
  readonly close = (): void => {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#output.off("resize", this.#redraw);
    process.off("exit", this.close);
    if (this.#input.isTTY) this.#input.setRawMode(false).off("data", this.#onKeys).pause();
    this.#output.write(LEAVE);
  };

  readonly #onKeys = (input: unknown): void => {
    if (typeof input !== "string") return;
    for (const key of keysOf(input)) this.#press(key);
    this.#redraw();
  };

  readonly #redraw = (): void => {
    if (!this.#isOpen) return;
    // Some terminals do not report their size.
    const size = { columns: this.#output.columns || 80, rows: this.#output.rows || 24 };
    const picture = this.#draw(size);
    this.#scroll = scrollFor(picture, this.#scroll, size.rows);
    const lines = frameLines(picture, this.#scroll, size).map((line) => printLine(line, this.#hasColour));
    this.#output.write(BEGIN_FRAME + lines.map((line) => `${line}\x1b[K`).join("\r\n") + END_FRAME);
  };
}
