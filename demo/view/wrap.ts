/** Wraps lines that are too long for a terminal, between words. */
import { type Line, type Segment, widthOf } from "./styled-line.ts";

/** Wraps a line to at most `width` columns; further lines start with `indent` blanks. Splits words that are too long. */
export function wrapLine(line: Line, width: number, indent: number): Line[] {
  if (widthOf(line) <= width) return [line];
  const lines: Segment[][] = [];
  let current: Segment[] = [];
  const end = (): void => {
    lines.push(current);
    current = [{ text: " ".repeat(indent), styles: [] }];
  };
  const isEmpty = (): boolean => (lines.length === 0 ? current.length === 0 : current.length === 1);
  for (const word of wordsOf(line)) {
    const isBlank = word.text.trim() === "";
    if (widthOf(current) + widthOf([word]) > width && !isEmpty()) end();
    if (isBlank && isEmpty() && lines.length > 0) continue;
    let rest = [...word.text];
    for (let room = width - widthOf(current); rest.length > room && room > 0; room = width - widthOf(current)) {
      current.push({ ...word, text: rest.slice(0, room).join("") });
      rest = rest.slice(room);
      end();
    }
    if (rest.length > 0) current.push({ ...word, text: rest.join("") });
  }
  if (!isEmpty()) lines.push(current);
  return lines;
}

/** Words and the blanks between them, each with its style. */
function wordsOf(line: Line): Segment[] {
  return line.flatMap(({ text, styles }) => (text.match(/\s+|\S+/g) ?? []).map((word) => ({ text: word, styles })));
}
