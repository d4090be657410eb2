/** Compares answers with expectations, in the few words of a table cell and in a full sentence. */

import type { IpAddress } from "../src/net/ip.ts";
import type { ProbeAnswer } from "../testkit/net/messages.ts";

export type Expectation =
  | {
      readonly kind: "answer";
      /** The pods that may answer, with the source address that each must see; undefined: any. */
      readonly peers: ReadonlyMap<string, IpAddress | undefined>;
      readonly source: "kept" | "masqueraded";
      readonly isSticky: boolean;
    }
  | { readonly kind: "refused"; readonly why: string }
  | { readonly kind: "dropped"; readonly why: string };

export interface Judgement {
  readonly isRight: boolean;
  /** For the table: `masqueraded`, `refused`, `web-2 not seen`. */
  readonly text: string;
  /** What was expected and what came; empty if right. */
  readonly detail: string;
}

const right = (text: string): Judgement => ({ isRight: true, text, detail: "" });

/** The least number of requests for a cell; several expected pods may need more. */
export function minimumRequests(expected: Expectation): number {
  return expected.kind === "answer" ? 6 : 2;
}

/**
 * How many more requests to make before judging: with a random choice among n pods, a missing pod is a fault only after
 * many requests. For up to ten pods, 200 requests miss one by chance less than once in 10^9 times.
 */
export function furtherRequests(expected: Expectation, answers: readonly ProbeAnswer[]): number {
  if (expected.kind !== "answer" || expected.isSticky || expected.peers.size < 2 || answers.length >= 200) return 0;
  const seen = new Set<string>();
  for (const answer of answers) {
    if (!answer.ok || !expected.peers.has(answer.pod)) return 0;
    seen.add(answer.pod);
  }
  return seen.size < expected.peers.size ? 20 : 0;
}

/** Judges the answers that one client got from one address. */
export function judge(expected: Expectation, answers: readonly ProbeAnswer[]): Judgement {
  if (expected.kind !== "answer") {
    const wanted = expected.kind === "dropped" ? "timeout" : expected.kind;
    const other = answers.find((answer) => answer.ok || answer.error !== wanted);
    if (other === undefined) return right(expected.kind);
    return wrong(expected, shortText(other), longText(other));
  }
  const failure = answers.find((answer) => !answer.ok);
  if (failure !== undefined) return wrong(expected, shortText(failure), longText(failure));
  const pods = new Set<string>();
  for (const answer of answers) {
    if (!answer.ok) continue;
    const peer = expected.peers.get(answer.pod);
    if (!expected.peers.has(answer.pod)) return wrong(expected, `by ${answer.pod}`, longText(answer));
    if (peer !== undefined && peer !== answer.peer) return wrong(expected, `from ${answer.peer}`, longText(answer));
    pods.add(answer.pod);
  }
  const source = expected.source === "kept" ? "source kept" : "masqueraded";
  if (expected.isSticky) {
    if (pods.size === 1) return right(`${source}, ${[...pods].join()}`);
    return wrong(expected, "moved between pods", `answers from ${[...pods].join(" and ")}`);
  }
  const missing = [...expected.peers.keys()].filter((pod) => !pods.has(pod));
  if (missing.length === 0) return right(source);
  return wrong(expected, `${missing[0]} not seen`, `${answers.length} answers, none from ${missing.join(", ")}`);
}

function wrong(expected: Expectation, text: string, got: string): Judgement {
  return { isRight: false, text, detail: `expected ${describe(expected)}; got ${got}` };
}

function shortText(answer: ProbeAnswer): string {
  if (answer.ok) return `by ${answer.pod}`;
  return answer.error === "timeout" ? "no answer" : answer.error === "refused" ? "refused" : answer.detail;
}

function longText(answer: ProbeAnswer): string {
  if (answer.ok) return `an answer from ${answer.pod}, which saw ${answer.peer}`;
  return answer.error === "timeout" ? answer.detail : answer.error === "refused" ? "a refusal" : answer.detail;
}

/** The expectation in words. */
export function describe(expected: Expectation): string {
  switch (expected.kind) {
    case "refused":
      return `a refusal (${expected.why})`;
    case "dropped":
      return `silence (${expected.why})`;
    case "answer": {
      const each = [...expected.peers].map(([pod, peer]) => (peer === undefined ? pod : `${pod} seeing ${peer}`));
      return `${expected.isSticky ? "always the same of" : "answers from"} ${each.join(", ")}`;
    }
  }
}
