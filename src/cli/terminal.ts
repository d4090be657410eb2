/** What the reader of the output can show: colour, and how wide it is. */

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
