/** What leads a client where it was led before, and is no rule: virtual servers, sockets of programs and of the proxy. Pure. */
import type { RememberedLists } from "../iptables/surroundings.ts";
import type { StepResult } from "./program.ts";

interface StickyChoice {
  /** Where clients are remembered, and who this one is. */
  readonly set: string;
  readonly client: string;
  /** What decides where nothing is known of the client: whether it was here before, in words. */
  readonly question: string;
  readonly ends: readonly {
    readonly end: string;
    readonly odds: number;
    readonly result: StepResult & { kind: "verdict" | "lost" };
  }[];
}

/** @param clients that were here before; undefined where that is not known. */
export function stickyChoice(
  clients: RememberedLists | undefined,
  { set, client, question, ends }: StickyChoice,
): StepResult {
  const known = clients?.entryOf(set, client)?.data?.[0];
  const kept = ends.find(({ end }) => end === known);
  if (kept !== undefined) return kept.result;
  const options = ends.map(({ end, odds, result }) => ({
    odds,
    result: { ...result, entry: { set, key: client, data: [end] } },
  }));
  const chosen: StepResult = { kind: "choice", options };
  if (clients !== undefined) return chosen;
  const because = "it goes to the endpoint of the client's earlier connections";
  return { kind: "unknown", question, yes: { kind: "lost", because }, no: chosen };
}
