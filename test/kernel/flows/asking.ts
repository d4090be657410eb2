/** Makes real requests until their outcomes can be compared with the expected ones, and says how they differ. */
import type { Protocol } from "../../../src/net/protocol.ts";
import type { ProbeAnswer } from "../../../testkit/net/messages.ts";
import type { Prober } from "../../../testkit/net/namespace-prober.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import type { Expected } from "./expected.ts";

/** The destination of a request. */
export interface Address {
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
}

/** Long enough for a busy machine, and for the second SYN: an ICMPv6 error that comes too early for the first is lost. */
const ANSWER_LIMIT_MS = stretched(8000);
/** Anything but a drop shows within this time. */
const SILENCE_MS = 700;
const ROUND = 8;
/** Misses one of three pods by chance in fewer than one of 10^21 cells. */
const MOST_REQUESTS = 120;

/** Concurrent requests are limited, so that no socket buffer overflows. */
const MOST_AT_ONCE = 24;
let running = 0;
const queue: (() => void)[] = [];

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running >= MOST_AT_ONCE) await new Promise<void>((resolve) => queue.push(resolve));
  else running += 1;
  try {
    return await work();
  } finally {
    const next = queue.shift();
    if (next === undefined) running -= 1;
    else next();
  }
}

/** An answer in words: `web-1 saw 10.0.0.1`, `refused`, `timeout`. */
export function outcomeOf(answer: ProbeAnswer): string {
  if (answer.ok) return `${answer.pod} saw ${answer.peer}`;
  return answer.error === "other" ? answer.detail : answer.error;
}

/** All outcomes, each once, in order. */
export function outcomes(answers: readonly ProbeAnswer[]): string[] {
  return [...new Set(answers.map(outcomeOf))].sort();
}

function wantedOutcomes(expected: Expected & { kind: "answers" | "refused" | "closed" | "silence" }): string[] {
  if (expected.kind === "refused" || expected.kind === "closed") return [expected.kind];
  if (expected.kind === "silence") return ["timeout"];
  return [...expected.peers].map(([pod, peer]) => `${pod} saw ${peer}`).sort();
}

/** Makes `count` requests at once. */
export async function ask(prober: Prober, to: Address, count = 1): Promise<readonly ProbeAnswer[]> {
  return await inTurn(() => prober.connect({ ...to, count, timeoutMs: ANSWER_LIMIT_MS }));
}

/**
 * Makes requests until every expected outcome was seen, or an unexpected one.
 * @returns `expected …, got …`, or undefined if all is as it should be.
 */
export async function differenceFrom(expected: Expected, prober: Prober, to: Address): Promise<string | undefined> {
  if (expected.kind === "nothing") {
    const answered = (await prober.connect({ ...to, count: 2, timeoutMs: SILENCE_MS })).filter(({ ok }) => ok);
    return answered.length === 0 ? undefined : `expected no answer; got ${outcomes(answered).join(" and ")}`;
  }
  const wanted = wantedOutcomes(expected);
  const answers: ProbeAnswer[] = [];
  let got: string[];
  do {
    answers.push(...(await askFor(expected, prober, to)));
    got = outcomes(answers);
  } while (
    got.length < wanted.length &&
    got.every((outcome) => wanted.includes(outcome)) &&
    answers.length < MOST_REQUESTS
  );
  if (got.join() === wanted.join()) return undefined;
  return `expected ${wanted.join(" and ")}; got ${got.join(" and ")} in ${answers.length} requests`;
}

function askFor(
  expected: Expected & { kind: "answers" | "refused" | "closed" | "silence" },
  prober: Prober,
  to: Address,
): Promise<readonly ProbeAnswer[]> {
  switch (expected.kind) {
    case "silence":
      return prober.connect({ ...to, count: 2, timeoutMs: SILENCE_MS });
    case "refused":
    case "closed":
      return prober.connect({ ...to, count: 2, timeoutMs: ANSWER_LIMIT_MS });
    case "answers":
      // One round is enough for a single outcome.
      return ask(prober, to, expected.peers.size === 1 ? ROUND / 2 : ROUND);
  }
}
