/** Text for a terminal: long lines are broken between words, and indented as they began. */

/** A command to copy: a line break would be part of it. */
const WHOLE = /^ {2}(?:kube-proxy|kubectl|npm|bin\/) ?(?!.*\S {2,}\S)\S/;
/** A flag or a command of a help text, and the gap before what it means. */
const MEANT = /^ *\S+(?: \S+)* {2,}(?=\S)/;

/** @param width in characters; undefined: no limit. @param hang how much further than the first the other lines begin. */
export function fitLines(text: string, width: number | undefined, hang = 0): string {
  return width === undefined
    ? text
    : text
        .split("\n")
        .map((line) => brokenLine(line, width, hang))
        .join("\n");
}

/** The same for a help text, whose lines are already broken for a wider terminal: what is broken again flows on. */
export function fitHelp(text: string, width: number | undefined): string {
  if (width === undefined) return text;
  const lines: string[] = [];
  for (const line of text.split("\n")) {
    const last = lines.at(-1) ?? "";
    const goesOn = last.length > width && !isWhole(last) && line !== "" && indentOf(line) === hangOf(last, width);
    if (goesOn && !isWhole(line) && !/^ *-/.test(line)) lines[lines.length - 1] = `${last} ${line.trimStart()}`;
    else lines.push(line);
  }
  return lines.map((line) => brokenLine(line, width)).join("\n");
}

function isWhole(line: string): boolean {
  return WHOLE.test(line);
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

/** Where the lines after the first begin. */
function hangOf(line: string, width: number): number {
  const meant = MEANT.exec(line)?.[0].length ?? 0;
  return meant > 0 && meant <= width / 2 ? meant : indentOf(line);
}

function brokenLine(line: string, width: number, further = 0): string {
  if (line.length <= width || isWhole(line)) return line;
  const start = hangOf(line, width);
  const hang = start + further;
  const [head, rest] = [line.slice(0, start), line.slice(start)];
  const lines: string[] = [];
  let current = head;
  for (const word of rest.split(" ")) {
    const isFirst = current.trim() === "" || current === head;
    if (!isFirst && current.length + 1 + word.length > width) {
      lines.push(current);
      current = " ".repeat(hang) + word;
    } else current = isFirst ? current + word : `${current} ${word}`;
  }
  return [...lines, current].join("\n");
}
