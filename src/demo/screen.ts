/**
 * A terminal that shows one picture, redrawn in place on the alternate screen: a fixed head and foot, and a body that
 * scrolls with the arrow keys when it is longer than the terminal. Leaves the terminal as it was.
 */
import type { ReadStream, WriteStream } from "node:tty";
import { cutLine, type Line, printLine } from "./styled-line.ts";

export interface Picture {
  readonly head: readonly Line[];
  readonly body: readonly Line[];
  readonly foot: readonly Line[];
  /** Line of the body to bring into view when it becomes another one than before. */
  readonly focus?: number | undefined;
}

const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
// Terminals that know synchronised output show a redraw as a whole; the others ignore these.
const BEGIN_FRAME = "\x1b[?2026h\x1b[H";
const END_FRAME = "\x1b[J\x1b[?2026l";

/** Lines of a focused block that must be in view, or it is scrolled to the top. */
const FOCUS_MARGIN = 8;

const scrollSteps: Readonly<Record<string, (page: number) => number>> = {
  "\x1b[A": () => -1,
  k: () => -1,
  "\x1b[B": () => 1,
  j: () => 1,
  "\x1b[5~": (page) => -page,
  "\x1b[6~": (page) => page,
  " ": (page) => page,
};

/** What to show of a picture on a terminal of this size. Pure. */
export function frameLines(picture: Picture, scroll: number, columns: number, rows: number): readonly Line[] {
  const room = bodyRows(picture, rows);
  const body = picture.body.slice(scroll, scroll + room);
  const lines = [...picture.head, ...body, ...picture.foot].slice(0, rows);
  return lines.map((line) => cutLine(line, columns));
}

/** Rows left for the body. Pure. */
export function bodyRows({ head, foot }: Picture, rows: number): number {
  return Math.max(0, rows - head.length - foot.length);
}

/** Owns the terminal from construction to {@link Screen.close}. */
export class Screen {
  readonly #output: WriteStream;
  readonly #input: ReadStream;
  readonly #onQuit: () => void;
  readonly #hasColour: boolean;
  #picture: Picture = { head: [], body: [], foot: [] };
  #scroll = 0;
  #isOpen = true;

  /** @param onQuit called for `q` and Ctrl-C, which raw input no longer turns into a signal. */
  constructor(output: WriteStream, input: ReadStream, onQuit: () => void) {
    this.#output = output;
    this.#input = input;
    this.#onQuit = onQuit;
    this.#hasColour = output.hasColors();
    output.write(ENTER);
    output.on("resize", this.#draw);
    process.once("exit", this.close);
    if (!input.isTTY) return;
    input.setRawMode(true).setEncoding("utf8").on("data", this.#onKey).resume();
  }

  /** Shows a picture in place of the last. */
  show(picture: Picture): void {
    const { focus } = picture;
    if (focus !== undefined && focus !== this.#picture.focus) {
      const room = bodyRows(picture, this.#output.rows);
      if (focus < this.#scroll || focus > this.#scroll + room - FOCUS_MARGIN) this.#scroll = focus - 1;
    }
    this.#picture = picture;
    this.#draw();
  }

  /** Gives the terminal back. Safe to call twice. */
  readonly close = (): void => {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#output.off("resize", this.#draw);
    process.off("exit", this.close);
    if (this.#input.isTTY) this.#input.setRawMode(false).off("data", this.#onKey).pause();
    this.#output.write(LEAVE);
  };

  readonly #onKey = (key: unknown): void => {
    if (typeof key !== "string") return;
    if (key === "q" || key === "\x03") this.#onQuit();
    const step = scrollSteps[key];
    if (step === undefined) return;
    this.#scroll += step(bodyRows(this.#picture, this.#output.rows));
    this.#draw();
  };

  readonly #draw = (): void => {
    if (!this.#isOpen) return;
    const { columns, rows } = this.#output;
    const last = Math.max(0, this.#picture.body.length - bodyRows(this.#picture, rows));
    this.#scroll = Math.min(Math.max(0, this.#scroll), last);
    const lines = frameLines(this.#picture, this.#scroll, columns, rows).map((line) =>
      printLine(line, this.#hasColour),
    );
    this.#output.write(BEGIN_FRAME + lines.map((line) => `${line}\x1b[K`).join("\r\n") + END_FRAME);
  };
}
