/** How a command answers and ends: exit statuses and errors (reference start.md §1, §2.1), output, and colours. */

import { styleText } from "../../async/node-util.ts";
import { escapeLine } from "../../logging/escape.ts";
import { fitLines } from "../../text/fit-lines.ts";
import type { TellProgress } from "./progress.ts";

export const EXIT_SUCCESS = 0;
/** The only failure status of kube-proxy's own. */
export const EXIT_FAILURE = 1;

/** For an unusable command line or input, if {@link EXIT_FAILURE} is an answer. */
export const EXIT_BAD_INPUT = 2;

/**
 * A command line that cannot be used. It is printed as `Error: …` on standard error, followed by a line with the hint if
 * there is one; nothing is logged, because logging is not set up yet.
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
  /** In characters; undefined: not a terminal, so lines are not wrapped. */
  readonly width: number | undefined;
}

/** What `--color` takes. */
export const COLOURS = ["auto", "always", "never"] as const;
interface Stream {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** In characters; undefined without a terminal, and for one that does not say: `docker exec -t` and `script` may have 0 columns. */
export function widthOf({ isTTY = false, columns }: Stream): number | undefined {
  return isTTY && columns !== undefined && columns > 0 ? columns : undefined;
}

/** @param env NO_COLOR counts as https://no-color.org defines: if set and not empty. */
export function terminalOf(stream: Stream, choice: (typeof COLOURS)[number], env: NodeJS.ProcessEnv): Terminal {
  const isWanted = stream.isTTY === true && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return {
    hasColour: choice === "always" || (choice === "auto" && isWanted),
    width: widthOf(stream),
  };
}

type Style = Parameters<typeof styleText>[0];

/** Styles of whole lines. */
const LINES: readonly (readonly [line: RegExp, style: Style])[] = [
  [/^(?:Addresses|Endpoints|Why|Passed over|In the kernel|Counted|What becomes of it:|Packet: .*)$/, "bold"],
  [/^\s*[A-Z]{3}[A-Z ]*(?: {2,}[A-Z][A-Z ]+)+$/, "dim"],
  // Differences, and the lines that only one side of a live trace has.
  [/^(?: {2})?\+ /, "green"],
  [/^(?: {2})?- /, "red"],
];

/** Styles of words; if several match at one place, the first counts. */
const WORDS: readonly (readonly [words: string, style: Style])[] = [
  [
    "NOT healthy|do NOT treat|not ready|no longer answers|refused|dropped|is missing|missing:|is gone|the last sync failed|REFUSED|FAILED|The simulation differs",
    "red",
  ],
  [
    "left out|extra:|is there, and should not be|is not as it should be|in a wrong order|not taken|not known|destroyed by",
    "yellow",
  ],
  [
    "answered|as the Services ask|now answers|healthy|used|ready|No differences|sent to|The simulation says the same",
    "green",
  ],
];
const WORD = new RegExp(`\\b(?:${WORDS.map(([words]) => `(${words})`).join("|")})(?![\\w-])`, "g");

/** The text of a command as the terminal shows it: lines that fit, and colour. The text's own escapes must have been removed. */
export function painted(text: string, { hasColour, width }: Partial<Terminal> = {}): string {
  const shown = (line: string) => {
    const parts = fitLines(line, width, 2).split("\n");
    return (hasColour === true ? parts.map((part) => paintedLine(part, line)) : parts).join("\n");
  };
  return text.split("\n").map(shown).join("\n");
}

/** @param whole the line that it is a part of. */
function paintedLine(line: string, whole: string): string {
  const [, style] = LINES.find(([pattern]) => pattern.test(whole)) ?? [];
  if (style !== undefined) return styled(style, line);
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
  /** How many characters the reader of `out` has not read yet. @default it reads all at once */
  readonly waiting?: () => number;
  /** The terminal that `out` writes to. @default neither colour nor a width */
  readonly terminal?: Terminal;
  /** Shows how far long work is. @default nothing is shown */
  readonly progress?: TellProgress | undefined;
}

/** Runs a command whose exit status 1 is an answer: a usage error is printed, and the status is 2. */
export async function inspecting(output: Output, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    output.err(`Error: ${escapeLine(error.message)}\n${error.hint === undefined ? "" : `${escapeLine(error.hint)}\n`}`);
    return EXIT_BAD_INPUT;
  }
}
