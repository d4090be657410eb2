/**
 * What redirects packets by destination without being a rule: virtual servers, BPF programs at sockets, and the proxy's own sockets.
 * Each entry has a place: `tcp 10.96.0.10:80`, or `tcp 30080` for several addresses.
 */
import { parseHostPort } from "../../net/ip.ts";
import type { RememberedLists } from "../iptables/surroundings.ts";
import type { Packet } from "../packet.ts";
import { fieldsQuestion, type Key, type Question } from "../question.ts";
import type { BaseChain, Chain, Rule, StepResult } from "./program.ts";

interface Destinations<Entry> extends Pick<BaseChain, "table" | "stage" | "priority">, Pick<Chain, "name" | "asks"> {
  readonly entries: ReadonlyMap<string, Entry>;
  /** The place of a packet's destination. */
  placeOf(packet: Packet): string | undefined;
  ruleOf(place: string, entry: Entry): Rule;
}

/** A chain in which a packet meets at most one entry, the one of its destination. */
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

/** Questions for places with an address, which take precedence, and for those with only a port. */
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
  /** The set that remembers clients, and this client's key in it. */
  readonly set: string;
  readonly client: string;
  /** What to ask if the client's history is not known: whether it has connected before, in words. */
  readonly question: string;
  readonly ends: readonly {
    readonly end: string;
    readonly odds: number;
    readonly result: StepResult & { kind: "verdict" | "lost" };
  }[];
  /** The index of the end that the client's hash chooses. @default by chance, or not known */
  readonly taken?: number | undefined;
}

/** Sends a client to the same endpoint as before. @param clients the remembered ones; undefined if not known. */
export function stickyChoice(
  clients: RememberedLists | undefined,
  { set, client, question, ends, taken }: StickyChoice,
): StepResult {
  const known = clients?.entryOf(set, client)?.data?.[0];
  const kept = ends.find(({ end }) => end === known);
  if (kept !== undefined) return kept.result;
  const options = ends.map(({ end, odds, result }) => ({
    odds,
    result: { ...result, entry: { set, key: client, data: [end] } },
  }));
  const chosen: StepResult = { kind: "choice", options, taken };
  if (clients !== undefined) return chosen;
  const because = "it goes to the endpoint of the client's earlier connections";
  return { kind: "unknown", question, yes: { kind: "lost", because }, no: chosen };
}
