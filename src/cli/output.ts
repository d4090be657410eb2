/** How a command answers and ends: statuses and errors (reference start.md §1, §2.1), where it writes, and what is in colour there. */
import { styleText } from "../kernel/node-util.ts";
import { escapeLine } from "../logging/escape.ts";

export const EXIT_SUCCESS = 0;
/** The only failure status that kube-proxy chooses itself. */
export const EXIT_FAILURE = 1;

/** A command line or input that cannot be used, where {@link EXIT_FAILURE} is an answer. */
export const EXIT_BAD_INPUT = 2;

/**
 * A command line that cannot be used. It is printed as `Error: …` on standard error, with the hint, if there is one, in a
 * line after it; nothing is logged, because logging is not set up yet.
 */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** What to type instead. */
  readonly hint: string | undefined;
  constructor(message: string, hint?: string) {
    super(message);
    this.hint = hint;
  }
}

/** A start-up step that failed after the command line was read: logged as `"command failed" err="<message>"`. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

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

export interface Output {
  out(text: string): void;
  err(text: string): void;
  /** How many characters the reader of `out` has not taken yet. @default it takes all at once */
  readonly waiting?: () => number;
  /** What the reader of `out` can show. @default neither colour nor a width */
  readonly terminal?: Terminal;
}

/** Runs a command whose exit status 1 is an answer: what the user must mend is said, and ends it with status 2. */
export async function inspecting(output: Output, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    output.err(`Error: ${escapeLine(error.message)}\n${error.hint === undefined ? "" : `${escapeLine(error.hint)}\n`}`);
    return EXIT_BAD_INPUT;
  }
}
