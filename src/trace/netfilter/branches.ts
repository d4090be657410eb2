/** How a walk goes on where chance, or something that is not known, decides. Pure. */
import type { StepResult } from "./program.ts";

interface OpenBranch {
  readonly odds: number | undefined;
  readonly label: string;
  readonly result: StepResult;
  readonly answer: { readonly question: string; readonly isYes: boolean } | undefined;
}

export type Branching =
  | { readonly kind: "one"; readonly result: StepResult }
  | { readonly kind: "several"; readonly question: string | undefined; readonly branches: readonly OpenBranch[] };

/**
 * @param answers those that the way has taken for granted.
 * @param random picks one of a choice; without it the walk forks.
 */
export function branchesOf(
  result: StepResult & { kind: "choice" | "unknown" },
  answers: ReadonlyMap<string, boolean>,
  random: (() => number) | undefined,
): Branching {
  if (result.kind === "unknown") {
    const { question, yes, no } = result;
    const answer = answers.get(question);
    if (answer !== undefined) return { kind: "one", result: answer ? yes : no };
    if (yes === no) return { kind: "one", result: yes };
    const branch = (isYes: boolean): OpenBranch => ({
      odds: undefined,
      label: isYes ? question : `not: ${question}`,
      result: isYes ? yes : no,
      answer: { question, isYes },
    });
    return { kind: "several", question: `whether ${question}`, branches: [branch(true), branch(false)] };
  }
  const options = merged(result.options);
  const [only] = options;
  if (only !== undefined && options.length === 1) return { kind: "one", result: only.result };
  if (random !== undefined) return { kind: "one", result: picked(options, random()) };
  const branches = options.map(({ odds, result: one }) => {
    return { odds, label: labelOf(one), result: one, answer: undefined };
  });
  return { kind: "several", question: undefined, branches };
}

interface Option {
  readonly odds: number;
  readonly result: StepResult;
}

/** All that do not match are one option. */
function merged(options: readonly Option[]): readonly Option[] {
  const misses = options.filter(({ result }) => result.kind === "no-match");
  const [first] = misses;
  if (first === undefined || misses.length === 1) return options;
  const odds = misses.reduce((sum, option) => sum + option.odds, 0);
  return [...options.filter(({ result }) => result.kind !== "no-match"), { odds, result: first.result }];
}

function picked(options: readonly Option[], value: number): StepResult {
  let rest = value;
  for (const { odds, result } of options) {
    rest -= odds;
    if (rest < 0) return result;
  }
  return options.at(-1)?.result ?? { kind: "no-match" };
}

function labelOf(result: StepResult): string {
  switch (result.kind) {
    case "no-match":
      return "no match";
    case "verdict":
      if (result.said !== undefined) return result.said;
      return "chain" in result.verdict ? `${result.verdict.kind} ${result.verdict.chain}` : result.verdict.kind;
    case "go-on":
      return result.said ?? "match";
    default:
      return result.kind;
  }
}
