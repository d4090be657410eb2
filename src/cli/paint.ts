/** Colours in the answers for people: what is well, what is not, and what to look at. Pure. */
import { styleText } from "../kernel/node-util.ts";
import type { Terminal } from "./terminal.ts";

type Style = Parameters<typeof styleText>[0];

/** Lines as a whole. */
const LINES: readonly (readonly [line: RegExp, style: Style])[] = [
  [/^(?:Addresses|Endpoints|Why|Passed over|In the kernel|Counted|What becomes of it:|Packet: .*)$/, "bold"],
  [/^\s*[A-Z]{3}[A-Z ]*(?: {2,}[A-Z][A-Z ]+)+$/, "dim"],
  // Differences, and the lines of a live trace that only one side has.
  [/^(?: {2})?\+ /, "green"],
  [/^(?: {2})?- /, "red"],
];

/** In the order in which they are looked for at one place. */
const WORDS: readonly (readonly [words: string, style: Style])[] = [
  [
    "NOT healthy|not ready|no longer answers|refused|dropped|is missing|missing:|is gone|the last sync failed|REFUSED|FAILED|The simulation differs",
    "red",
  ],
  [
    "left out|extra:|is there, and should not be|is not as it should be|in a wrong order|not taken|not known|destroyed by",
    "yellow",
  ],
  ["answered|now answers|healthy|used|ready|No differences|sent to|The simulation says the same", "green"],
];
const WORD = new RegExp(`\\b(?:${WORDS.map(([words]) => `(${words})`).join("|")})(?![\\w-])`, "g");

/** A text of a command in colour, where the terminal has colour; its escapes must have been taken out of it before. */
export function painted(text: string, terminal: Terminal | undefined): string {
  return terminal?.hasColour === true ? text.split("\n").map(paintedLine).join("\n") : text;
}

function paintedLine(line: string): string {
  const [, whole] = LINES.find(([pattern]) => pattern.test(line)) ?? [];
  if (whole !== undefined) return styled(whole, line);
  return line.replace(WORD, (word, ...groups) => {
    const [, style] = WORDS.find((_, index) => groups[index] !== undefined) ?? [];
    return style === undefined ? word : styled(style, word);
  });
}

function styled(style: Style, text: string): string {
  return styleText(style, text, { validateStream: false });
}
