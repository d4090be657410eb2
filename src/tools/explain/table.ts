/** A plain-text table: columns are as wide as their widest cell, or narrower to fit a terminal. */

const GAP = "  ";
/** `namespace/name…`, or a Node's or a pod's name: no address; only a long name has so many characters. */
const NAME = /^\(?[a-z][a-z0-9.-]*\/[a-z0-9]|^[a-z][a-z0-9.-]{23,}$/;
/** The fewest characters of a name that is shortened: at first, and if that is not enough. */
const SHORT_NAMES = [24, 16] as const;
/** So many characters of a cell stay on one line while names can still be shortened. */
const SHORT_CELL = 20;
/** The space between words; `50 %` stays one word. */
const BETWEEN_WORDS = / (?!%)/;

/**
 * @param indent before each line; the last cell of a line is not padded.
 * @param width of the terminal, in characters: cells wrap between words so that lines fit, and if that is not enough, long names
 *   are shortened. @default no limit
 */
export function tableText(rows: readonly (readonly string[])[], indent = GAP, width?: number): string {
  const widths = widest(rows, (cell) => cell.length);
  if (width !== undefined) {
    const [short, shortest] = SHORT_NAMES;
    const available = width - indent.length - GAP.length * (widths.length - 1);
    for (const [ofName, ofCell] of [
      [Number.POSITIVE_INFINITY, SHORT_CELL],
      [short, SHORT_CELL],
      [shortest, 0],
    ] as const) {
      const ofWord = (word: string) => (NAME.test(word) ? Math.min(word.length, ofName) : word.length);
      const least = widest(rows, (cell) =>
        Math.max(NAME.test(cell) ? 0 : Math.min(cell.length, ofCell), ...cell.split(BETWEEN_WORDS).map(ofWord)),
      );
      narrow(widths, least, available);
    }
  }
  const lines = rows.flatMap((row) => linesOfRow(row, widths));
  return lines.map((line) => `${`${indent}${line}`.trimEnd()}\n`).join("");
}

function widest(rows: readonly (readonly string[])[], widthOf: (cell: string) => number): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, widthOf(cell));
  }
  return widths;
}

/** Repeatedly narrows the column with the most room. @param least the width of each column's longest word */
function narrow(widths: number[], least: readonly number[], available: number): void {
  let excess = widths.reduce((sum, width) => sum + width, 0) - available;
  while (excess > 0) {
    const spare = widths.map((width, index) => width - (least[index] ?? 0));
    const most = Math.max(...spare);
    if (most <= 0) return;
    const index = spare.indexOf(most);
    const next = Math.max(0, ...spare.filter((_, other) => other !== index));
    const taken = Math.min(excess, Math.max(1, most - next));
    widths[index] = (widths[index] ?? 0) - taken;
    excess -= taken;
  }
}

function linesOfRow(row: readonly string[], widths: readonly number[]): string[] {
  const cells = row.map((cell, index) => brokenLines(cell, widths[index] ?? 0));
  const height = Math.max(1, ...cells.map((lines) => lines.length));
  return Array.from({ length: height }, (_, at) => {
    return cells.map((lines, index) => (lines[at] ?? "").padEnd(widths[index] ?? 0)).join(GAP);
  });
}

/** Wraps a cell. Addresses stay whole, so that they can be copied. */
function brokenLines(cell: string, width: number): string[] {
  if (cell.length <= width) return [cell];
  const lines: string[] = [];
  let line = "";
  for (const whole of cell.split(BETWEEN_WORDS)) {
    const word = NAME.test(whole) ? shortened(whole, width) : whole;
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** Keeps both ends: the namespace, and the port's name. */
function shortened(name: string, width: number): string {
  if (name.length <= width || width < SHORT_NAMES[1]) return name;
  const head = Math.ceil((width - 1) * 0.6);
  return `${name.slice(0, head)}…${name.slice(head + 1 - width)}`;
}
