/** A walked way as the page shows it: steps, and branches where it forks. Pure. */
import { type Branch, ruleName, type TraceEvent, type TraceNode } from "../trace/netfilter/tree.ts";
import { fateText, oddsText } from "../trace/report/fate-text.ts";
import { flatBranches } from "../trace/report/flat-fork.ts";
import type { TraceStep, TraceSteps } from "./answers.ts";

/** Branches beyond these are named in a last one. */
const SHOWN_BRANCHES = 50;

export function stepsOf({ events, end }: TraceNode): TraceSteps {
  const steps = events.map(stepOf);
  if (end.kind === "end") {
    const { kind } = end.fate;
    return {
      steps,
      fate: fateText(end),
      isGood: kind === "sent" || kind === "delivered",
      question: null,
      branches: [],
    };
  }
  const isRandom = end.branches.every(({ odds }) => odds !== undefined);
  const branches = isRandom ? flatBranches(end) : end.branches;
  return {
    steps,
    fate: null,
    isGood: true,
    question: isRandom
      ? `One of ${branches.length} ways, at random`
      : `It depends on ${end.question ?? "what is not known"}`,
    branches: branches.slice(0, SHOWN_BRANCHES).map(branchOf),
  };
}

function branchOf({ odds, label, node }: Branch): TraceSteps["branches"][number] {
  return { odds: odds === undefined ? null : oddsText(odds), label, way: stepsOf(node) };
}

function stepOf(event: TraceEvent): TraceStep {
  switch (event.kind) {
    case "stage":
      return { kind: "stage", text: event.stage, said: null };
    case "base-chain":
      return { kind: "chain", text: `${event.chain.table}, ${event.chain.chain.name}`, said: null };
    case "not-asked": {
      const { table, chain } = event.chain;
      return { kind: "chain", text: `${table}, ${chain.name}`, said: `not asked, ${event.because}` };
    }
    case "skipped":
      return {
        kind: "note",
        text: `${event.chain}: ${event.count} rules are for other addresses and ports`,
        said: null,
      };
    case "no-match": {
      const { rule, condition, observed } = event;
      const said = `no: ${condition}${observed === undefined ? "" : `, and ${observed}`}`;
      return { kind: "no-match", text: `${ruleName(event)}: ${rule.text}`, said };
    }
    case "match":
      return { kind: "match", text: `${ruleName(event)}: ${event.rule.text}`, said: event.said };
    case "remark":
      return { kind: "note", text: event.text, said: null };
    case "policy":
      return { kind: "note", text: `the policy of ${event.chain.chain.name} is ${event.chain.policy}`, said: null };
    case "routed":
      return { kind: "note", text: `routed to ${event.to}: ${event.because}`, said: null };
  }
}
