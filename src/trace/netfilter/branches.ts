/** How a walk continues where chance, or an unknown fact, decides. */
import { isDeepStrictEqual } from "node:util";
import type { Packet } from "../packet.ts";
import { firstText } from "./calling-order.ts";
import { type BaseChain, GO_ON, type Option, type Rule, resultOf, type StepResult } from "./program.ts";
import type { WalkOptions } from "./tree.ts";
import { type Branch, hashedBy, type Walk } from "./walk-state.ts";

export interface Continuation {
  /** Undefined if an answer decides. */
  readonly odds?: number;
  readonly label: string;
  readonly by?: string | undefined;
  readonly result: StepResult;
  readonly answer?: { readonly question: string; readonly isYes: boolean };
}

/**
 * The possible continuations; the walk forks if there is more than one.
 *
 * @param answers what this path has already assumed.
 * @param options `random` picks one option of a choice; without it the walk forks. With an observer, it forks at hashes, too.
 */
export function branchesOf(
  result: StepResult & { kind: "choice" | "unknown" },
  answers: ReadonlyMap<string, boolean>,
  { random, observer }: WalkOptions,
): readonly Continuation[] {
  if (result.kind === "unknown") {
    const { question, yes, no } = result;
    const known = answers.get(question) ?? (yes === no ? true : undefined);
    return (known === undefined ? [true, false] : [known]).map((isYes) => ({
      label: isYes ? question : `not: ${question}`,
      result: isYes ? yes : no,
      answer: { question, isYes },
    }));
  }
  const taken = observer === undefined ? result.options[result.taken ?? -1] : undefined;
  const options = taken === undefined ? merged(result.options) : [taken];
  const chosen = random === undefined || options.length === 1 ? options : picked(options, random());
  return chosen.map(({ odds, result: one, by }) => ({ odds, label: labelOf(one), result: one, by }));
}

/** Joins all options that do not match. */
function merged(options: readonly Option[]): readonly Option[] {
  const misses = options.filter(({ result }) => result.kind === "no-match");
  const [first] = misses;
  if (first === undefined || misses.length === 1) return options;
  const odds = misses.reduce((sum, option) => sum + option.odds, 0);
  const by = misses.flatMap((miss) => miss.by ?? []).join(", or ");
  return [
    ...options.filter(({ result }) => result.kind !== "no-match"),
    { odds, result: first.result, ...(by !== "" && { by }) },
  ];
}

function picked(options: readonly Option[], value: number): readonly Option[] {
  let rest = value;
  for (const option of options) {
    rest -= option.odds;
    if (rest < 0) return [option];
  }
  return options.slice(-1);
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

/**
 * The packet after a rule with an unknown condition, where the answer makes no difference to its way: a later condition certainly
 * fails, the rule does nothing, or it only marks the connection. Undefined where it makes one.
 */
export function eitherWay(
  rule: Rule,
  at: number,
  { packet, entries }: Pick<Walk, "packet" | "entries">,
  asked: StepResult,
): Packet | undefined {
  let isIdle = isCondition(asked);
  let after = packet;
  for (const step of rule.steps.slice(at + 1)) {
    const result = resultOf(step, packet, entries);
    if (result.kind === "no-match") return packet;
    const marked = result.kind === "go-on" && result.entry === undefined ? result.packet : undefined;
    if (isCondition(result)) continue;
    if (result.kind === "unknown") isIdle = false;
    else if (marked !== undefined && isSameButMark(packet, marked)) after = marked;
    else return undefined;
  }
  if (!isIdle) return undefined;
  const [before, then] = [packet.connectionMark, after.connectionMark];
  const known = (before.known & then.known & ~(before.value ^ then.value)) >>> 0;
  return after === packet ? packet : { ...packet, connectionMark: { value: (before.value & known) >>> 0, known } };
}

/** Whether it can only match or not. */
function isCondition(result: StepResult): boolean {
  if (result.kind === "choice") return result.options.every((option) => isCondition(option.result));
  if (result.kind === "unknown") return isCondition(result.yes) && isCondition(result.no);
  return result === GO_ON || result.kind === "no-match";
}

function isSameButMark(one: Packet, other: Packet): boolean {
  const { connectionMark } = one;
  return isDeepStrictEqual({ ...other, connectionMark }, one);
}

/** The two continuations of a walk that depends on an unknown fact. @param not the label where it is not so. */
export function bothAnswers(walk: Walk, question: string, not: string): Branch[] {
  return [true, false].map((isYes) => {
    return { label: isYes ? question : not, walk: { ...walk, answers: new Map(walk.answers).set(question, isYes) } };
  });
}

/** The continuations in which each of the chains is called first. */
export function anyFirst(walk: Walk, chains: readonly BaseChain[]): Branch[] {
  return chains.map((first) => {
    const rest = [first, ...walk.rest.filter((chain) => chain !== first)];
    return { label: firstText(first, chains), walk: { ...walk, rest } };
  });
}

/** A walk behind what was decided. */
export function continued(walk: Walk, { odds, label, result: decided, answer, by }: Continuation): Branch {
  const answers = answer === undefined ? walk.answers : new Map(walk.answers).set(answer.question, answer.isYes);
  return { odds, label, walk: { ...walk, decided, answers, hashed: hashedBy(walk.hashed, by) } };
}
