/** `--once`: verifies everything once and prints the result. */

import { type Block, totalsOf } from "./results.ts";
import type { Session } from "./session.ts";
import { type Line, segment } from "./view/styled-line.ts";
import { failureLines, summaryLine, tableLines } from "./view/table.ts";

/** The start and the first sync take a second; a busy machine needs more. */
const FIRST_SYNC_TIMEOUT_MS = 30_000;

/** Waits for the first sync. Rejects with the proxy's log if there is none. @returns its time in Unix milliseconds. */
export async function firstSync(session: Session, signal: AbortSignal): Promise<number> {
  const syncedAt = await session.proxy.waitForSync(2, 0, FIRST_SYNC_TIMEOUT_MS, signal);
  if (syncedAt !== undefined || signal.aborted) return syncedAt ?? 0;
  const log = session.proxy.log.slice(-15).join("\n");
  throw new Error(`kube-proxy has not synced both families in ${FIRST_SYNC_TIMEOUT_MS / 1000} s. It logged:\n${log}`);
}

/** The whole table as lines to print. */
export function reportLines(blocks: readonly Block[], { problems, proxy }: Session): Line[] {
  const { head, body } = tableLines(blocks);
  const messages = [...failureLines(blocks), ...problemLines(problems), ...whereLines(proxy.isAtSocket)];
  return [head, [], ...body, [], ...messages, summaryLine(blocks)];
}

/** Where endpoints are chosen, in a mode with two places for it. */
export function whereLines(isAtSocket: boolean | undefined): Line[] {
  if (isAtSocket === undefined) return [];
  const text = isAtSocket
    ? "From pods and from the node: decided at the socket, when it connects or sends. From outside, and the rest: by rules."
    : "Nothing is decided at the socket here: all by rules. The proxy's log says why.";
  return [[segment(text, "dim")]];
}

/** One line for each problem. */
export function problemLines(problems: readonly string[]): Line[] {
  return problems.map((problem) => [segment("! ", "yellow", "bold"), segment(problem)]);
}

/** @returns the exit status: 0 if every answer is right and every manifest is good. */
export async function runOnce(session: Session, write: (line: Line) => void, signal: AbortSignal): Promise<number> {
  await firstSync(session, signal);
  const blocks = session.newTable();
  await session.fill(blocks, () => {}, signal);
  session.proxy.assertRunning();
  if (signal.aborted) return 1;
  for (const line of reportLines(blocks, session)) write(line);
  const { wrong, pending } = totalsOf(blocks);
  return wrong + pending + session.problems.length > 0 ? 1 : 0;
}
