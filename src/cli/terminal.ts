/** What the reader of the output can show: colour, and how wide it is. */
import { UsageError } from "./exit.ts";

export interface Terminal {
  readonly hasColour: boolean;
  /** In characters; undefined: no terminal, so no line is broken. */
  readonly width: number | undefined;
}

const CHOICES = ["auto", "always", "never"] as const;
type ColourChoice = (typeof CHOICES)[number];

/** Takes `--color` out of a command's arguments. @throws UsageError */
export function takeColour(argv: readonly string[]): {
  readonly argv: readonly string[];
  readonly choice: ColourChoice;
} {
  const rest: string[] = [];
  let choice: ColourChoice = "auto";
  for (let at = 0; at < argv.length; at += 1) {
    const word = argv[at] ?? "";
    const [, given = word === "--color" ? argv[++at] : undefined] = /^--color=(.*)$/.exec(word) ?? [];
    if (given === undefined && word !== "--color") {
      rest.push(word);
      continue;
    }
    const known = CHOICES.find((one) => one === given);
    if (known === undefined)
      throw new UsageError(
        `--color must be ${CHOICES.join(", ")}, got "${given ?? ""}"`,
        "For example: --color=always",
      );
    choice = known;
  }
  return { argv: rest, choice };
}

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
