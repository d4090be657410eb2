/** What the reader of the output can show: colour, and how wide it is; and what is in colour in the answers for people. */
import { styleText } from "../kernel/node-util.ts";

export interface Terminal {
  readonly hasColour: boolean;
  /** In characters; undefined: no terminal, so no line is broken. */
  readonly width: number | undefined;
}

/** What `--color` takes. */
export const COLOURS = ["auto", "always", "never"] as const;
type ColourChoice = (typeof COLOURS)[number];

interface Stream {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** @param env NO_COLOR is as https://no-color.org has it: set and not empty. Pure. */
export function terminalOf({ isTTY = false, columns }: Stream, choice: ColourChoice, env: NodeJS.ProcessEnv): Terminal {
  const isWanted = isTTY && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return {
    hasColour: choice === "always" || (choice === "auto" && isWanted),
    width: isTTY && columns !== undefined && columns > 0 ? columns : undefined,
  };
}

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
