/** Makes the requests of one table cell: one client, one address. */

import type { Protocol } from "../src/net/protocol.ts";
import type { ProbeAnswer } from "../testkit/net/messages.ts";
import type { Prober } from "../testkit/net/namespace-prober.ts";
import { stretched } from "../testkit/support/patience.ts";
import type { Expectation } from "./judgement.ts";
import { furtherRequests, type Judgement, judge, minimumRequests } from "./judgement.ts";
import type { Target } from "./targets.ts";

/**
 * How long to wait for each expectation. A refusal over TCP and IPv6 may only come with the second SYN, a second after
 * the first: the kernel drops an ICMPv6 error for a socket that is just connecting. The wait for silence is short, and
 * anything heard in that time disproves it. Other waits are longer on a busy machine, where a lost SYN is repeated after
 * 1, 3 and 7 seconds.
 */
const TIMEOUT_MS = { answer: 5000, refused: 5000, closed: 5000, dropped: 500 } as const;

function timeoutOf({ kind }: Expectation): number {
  return kind === "dropped" ? TIMEOUT_MS.dropped : stretched(TIMEOUT_MS[kind]);
}

export interface CellResult {
  readonly judgement: Judgement;
  readonly answers: readonly ProbeAnswer[];
}

/** Protocols that the demo's servers and clients speak. */
export function isProbeable(protocol: string): protocol is Protocol {
  return protocol === "TCP" || protocol === "UDP";
}

/** Sends requests until the expectation can be judged. Rejects if the prober has ended. */
export async function probeCell(
  prober: Prober,
  target: Target,
  protocol: Protocol,
  expected: Expectation,
): Promise<CellResult> {
  const isSticky = expected.kind === "answer" && expected.isSticky;
  const answers: ProbeAnswer[] = [];
  let count = minimumRequests(expected);
  while (count > 0) {
    const request = { protocol, address: target.address, port: target.number, timeoutMs: timeoutOf(expected) };
    // Two concurrent first requests may both find no remembered pod, and get different ones.
    answers.push(...(await prober.connect({ ...request, count, sequential: isSticky })));
    count = furtherRequests(expected, answers);
  }
  return { judgement: judge(expected, answers), answers };
}
