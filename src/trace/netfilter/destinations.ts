/**
 * What leads packets by their destination and is no rule: virtual servers, sockets of programs and of the proxy. One entry for each place:
 * `tcp 10.96.0.10:80`, or `tcp 30080` at several addresses. Pure.
 */
import { parseHostPort } from "../../net/ip.ts";
import type { RememberedLists } from "../iptables/surroundings.ts";
import type { Packet } from "../packet.ts";
import { fieldsQuestion, type Key, type Question } from "../question.ts";
import type { BaseChain, Chain, Rule, StepResult } from "./program.ts";

interface Destinations<Entry> extends Pick<BaseChain, "table" | "stage" | "priority">, Pick<Chain, "name" | "asks"> {
  readonly entries: ReadonlyMap<string, Entry>;
  /** The place that a packet asks for. */
  placeOf(packet: Packet): string | undefined;
  ruleOf(place: string, entry: Entry): Rule;
}

/** A packet meets one entry at most: that of its destination. */
export function destinationChain<Entry>({
  entries,
  placeOf,
  ruleOf,
  name,
  asks,
  ...base
}: Destinations<Entry>): BaseChain {
  const rules = [...entries];
  const indices = new Map(rules.map(([place], index) => [place, index]));
  const chain: Chain = {
    name,
    asks,
    length: rules.length,
    isNumbered: false,
    ruleAt(index) {
      const found = rules[index];
      return found && ruleOf(...found);
    },
    firstCandidate(from, packet) {
      const index = indices.get(placeOf(packet) ?? "");
      return index === undefined || index < from ? rules.length : index;
    },
  };
  return { ...base, type: "filter", policy: "accept", chain, chainNamed: () => undefined };
}

/** Places by their address and port, which go before, and those of several addresses by their port. */
export function placeQuestions(places: Iterable<string>): readonly [byAddress: Question, byPort: Question] {
  const byAddress: Key[] = [];
  const byPort: Key[] = [];
  for (const place of places) {
    const [protocol = "", end = ""] = place.toLowerCase().split(" ");
    const at = parseHostPort(end);
    const values = at === undefined ? [protocol, Number(end.replace("*:", ""))] : [protocol, at.address, at.port];
    const key: Key = { patterns: values.map((value) => ({ kind: "exact", value })), outcome: place };
    (at === undefined ? byPort : byAddress).push(key);
  }
  return [
    fieldsQuestion(["protocol", "destination", "destinationPort"], byAddress),
    fieldsQuestion(["protocol", "destinationPort"], byPort),
  ];
}

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

/** Leads a client where it was led before. @param clients that were here before; undefined where that is not known. */
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
