/** Lines of styled text with known width, so that columns align and long lines are cut at the edge of the terminal. */
import { styleText } from "node:util";

export type Style = "green" | "red" | "yellow" | "cyan" | "bold" | "dim";

/** A run of text in one style. Texts have no control characters, and only characters one column wide. */
export interface Segment {
  readonly text: string;
  readonly styles: readonly Style[];
}

export type Line = readonly Segment[];

/** Makes a segment. Control characters, which a manifest could smuggle in, become spaces. */
export function segment(text: string, ...styles: readonly Style[]): Segment {
  return { text: text.replace(/\p{Cc}/gu, " "), styles };
}

/** How many columns the line takes. */
export function widthOf(line: Line): number {
  return line.reduce((width, { text }) => width + [...text].length, 0);
}

/** Pads to a width with spaces at the end. */
export function padLine(line: Line, width: number): Line {
  const gap = width - widthOf(line);
  return gap > 0 ? [...line, segment(" ".repeat(gap))] : line;
}

/** Cuts to a width; a cut line ends in `…`. */
export function cutLine(line: Line, width: number): Line {
  if (widthOf(line) <= width) return line;
  const kept: Segment[] = [];
  let room = width - 1;
  for (const { text, styles } of line) {
    const characters = [...text].slice(0, room);
    kept.push({ text: characters.join(""), styles });
    room -= characters.length;
    if (room <= 0) break;
  }
  return [...kept, segment("…", "dim")];
}

/** The text for a terminal. @param hasColour false omits the styles. */
export function printLine(line: Line, hasColour: boolean): string {
  const plain = line.map(({ text, styles }) =>
    hasColour && styles.length > 0 ? styleText([...styles], text, { validateStream: false }) : text,
  );
  return plain.join("").trimEnd();
}
