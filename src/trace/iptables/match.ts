/** The match extensions of iptables as steps of a walk. */

import { clientHash } from "../../kernel/iptables/hash-program.ts";
import {
  type KernelMatch,
  type MatchKind,
  type PortRange,
  printMatch,
} from "../../kernel/iptables/parser/rule-matches.ts";
import type { IpAddress } from "../../net/ip.ts";
import { protocolNameOfNumber } from "../../net/protocol.ts";
import { isLocalQuestion } from "../facts.ts";
import { asked, GO_ON, NO_MATCH, type Step, type StepResult } from "../netfilter/program.ts";
import { knowsTranslation, type Packet, seenState } from "../packet.ts";
import { type Question, whichOf, within } from "../question.ts";
import type { Pattern } from "../value.ts";
import { answer } from "./basic-match.ts";
import { ipSetName, recentListName, type Surroundings } from "./surroundings.ts";

export const COMES_BY_BRIDGE = "it comes in by a port of a bridge";

/** A step without its text, which is the match itself. */
type Judged = Omit<Step, "text">;

/** Compiles a match; undefined if it always holds. */
export function matchStep<K extends MatchKind>(match: KernelMatch<K>, surroundings: Surroundings): Step | undefined {
  const judged = JUDGES[match.kind](match, surroundings);
  return judged && { text: printMatch(match), ...judged };
}

const JUDGES: { readonly [K in MatchKind]: (match: KernelMatch<K>, around: Surroundings) => Judged | undefined } = {
  comment: () => undefined,
  nfacct: () => undefined,
  conntrack: stateJudge,
  state: stateJudge,
  addrtype({ source, destination, device }, { facts }) {
    const one = (packet: Packet, address: IpAddress, types: KernelMatch<"addrtype">["source"]): StepResult => {
      if (types === undefined) return GO_ON;
      const type = facts.addressType(address);
      const has = (name: string) => types.types.some((known) => known === name);
      // To xt_addrtype, an address of another device is one of another node.
      if (device !== undefined && type === "local" && has("LOCAL") !== has("UNICAST")) {
        const name = device === "in" ? packet.inInterface : packet.outInterface;
        const verb = device === "in" ? "comes in" : "leaves";
        const question = `${address} is an address of ${name || `the interface by which it ${verb}`}`;
        return asked(question, types.negated !== has("UNICAST"));
      }
      if (type !== undefined)
        return answer(
          types.types.some((name) => name.toLowerCase() === type),
          types.negated,
        );
      const isLocal = types.types.length === 1 && types.types[0] === "LOCAL";
      const question = isLocal ? isLocalQuestion(address) : `${address} is of type ${types.types.join(",")}`;
      return asked(question, types.negated);
    };
    return {
      run: (packet) => both(one(packet, packet.source, source), () => one(packet, packet.destination, destination)),
      asks: [...((source && [facts.about.source]) || []), ...((destination && [facts.about.destination]) || [])],
      observed(packet) {
        const address = source === undefined ? packet.destination : packet.source;
        return `${address} is of type ${facts.addressType(address)?.toUpperCase() ?? "that is not known"}`;
      },
    };
  },
  mark: ({ value, mask, negated }) => ({
    run: (packet) => answer((packet.mark & mask) >>> 0 === value, negated),
    asks: [],
    observed: (packet) => `the mark is 0x${packet.mark.toString(16)}`,
  }),
  statistic({ probability, negated }) {
    const odds = negated ? 1 - probability / 2 ** 31 : probability / 2 ** 31;
    if (odds >= 1) return undefined;
    const options = [
      { odds, result: GO_ON },
      { odds: 1 - odds, result: NO_MATCH },
    ];
    return { run: () => (odds <= 0 ? NO_MATCH : { kind: "choice", options }), asks: [] };
  },
  bpf({ program }) {
    const { isFlow, seed, below } = program;
    const by = `the hash of the ${isFlow ? "source and its port" : "source"} with seed ${seed} is below ${below}`;
    const odds = below / 2 ** 32;
    const hashOf = (packet: Packet) => clientHash(program, packet.source, packet.sourcePort);
    return {
      // A proof compares the hashes themselves, for all clients at once.
      asks: [],
      run(packet) {
        const hash = hashOf(packet);
        const options = [
          { odds, result: GO_ON, by },
          { odds: 1 - odds, result: NO_MATCH, by: `not: ${by}` },
        ];
        return { kind: "choice", options, taken: hash === undefined ? undefined : hash < below ? 0 : 1 };
      },
      observed: (packet) =>
        `its hash is ${hashOf(packet) ?? "not known without the source port"}, and not below ${below}`,
    };
  },
  recent: recentJudge,
  set: ({ name, directions, negated }, { sets }) => ({
    asks: sets.asks(name, directions),
    reads: (entry) => entry.set === ipSetName(name),
    run(packet) {
      const isIn = sets.has(name, directions, packet);
      return isIn === undefined ? asked(`it is in the set ${name}`, negated) : answer(isIn, negated);
    },
  }),
  physdev: ({ isIn }) => ({
    asks: [whichOf("bridgePort", [""])],
    run({ bridgePort }) {
      return bridgePort === undefined ? asked(COMES_BY_BRIDGE, !isIn) : answer(bridgePort !== "", !isIn);
    },
  }),
  ipvs: ({ protocolNumber, address, port }) => ({
    asks: [],
    run({ virtualServer: server }) {
      if (server === undefined) return NO_MATCH;
      const isProtocol = protocolNumber === undefined || protocolNameOfNumber(protocolNumber) === server.protocol;
      const isPlace = [undefined, server.address].includes(address) && [undefined, server.port].includes(port);
      return answer(isProtocol && isPlace, false);
    },
  }),
  tcp: portsJudge,
  udp: portsJudge,
  sctp: portsJudge,
};

function stateJudge({ states, negated }: KernelMatch<"conntrack" | "state">): Judged {
  const has = (state: string) => states.some((one) => one === state);
  return {
    run(packet) {
      const { isDestinationTranslated, isSourceTranslated } = packet;
      const state = seenState(packet);
      if (has(state.toUpperCase())) return answer(true, negated);
      // For later packets, it is not known whether the first one was translated.
      if ((has("DNAT") || has("SNAT")) && !knowsTranslation(packet))
        return asked("the connection is translated", negated);
      return answer((has("DNAT") && isDestinationTranslated) || (has("SNAT") && isSourceTranslated), negated);
    },
    asks: [],
    observed: (packet) => `the connection is ${seenState(packet).toUpperCase()}`,
  };
}

function both(first: StepResult, second: () => StepResult): StepResult {
  if (first.kind === "no-match") return first;
  if (first.kind !== "unknown") return second();
  const rest = second();
  if (rest.kind === "no-match") return rest;
  return { ...first, yes: first.yes === GO_ON ? rest : first.yes, no: first.no === GO_ON ? rest : first.no };
}

function recentJudge(match: KernelMatch<"recent">, { recent }: Surroundings): Judged {
  const { list, action, negated, side, hitCount, seconds } = match;
  const addressIn = (packet: Packet) => (side === "source" ? packet.source : packet.destination);
  if (action === "set") {
    return {
      asks: [],
      isAction: true,
      run(packet) {
        const address = addressIn(packet);
        if (negated) return NO_MATCH;
        const entry = { set: recentListName(list), key: address };
        return { kind: "go-on", entry, said: `remembers ${address} in the list ${list}` };
      },
    };
  }
  return {
    // In a proof, lists start empty and a client's own packets fill them: without a hit count, this needs no question.
    asks: hitCount === undefined ? [] : undefined,
    reads: (entry) => entry.set === recentListName(list),
    run(packet) {
      const address = addressIn(packet);
      const isKnown = recent.has(list, address, seconds);
      if (isKnown === false) return answer(false, negated);
      const question = `${address} is in the list ${list}${hitCount === undefined ? "" : " often enough"}`;
      return isKnown === undefined || hitCount !== undefined ? asked(question, negated) : answer(true, negated);
    },
    observed: (packet) => `the list ${list} does not have ${addressIn(packet)}`,
  };
}

function portsJudge({ source, destination, kind }: KernelMatch<"tcp" | "udp" | "sctp">): Judged {
  const portQuestion = (field: "sourcePort" | "destinationPort", range: PortRange | undefined): Question[] => {
    if (range === undefined) return [];
    const pattern: Pattern = { kind: "range", first: BigInt(range.from), last: BigInt(range.to) };
    return [within(field, [pattern])];
  };
  return {
    asks: [
      whichOf("protocol", [kind]),
      ...portQuestion("sourcePort", source),
      ...portQuestion("destinationPort", destination),
    ],
    run(packet) {
      if (packet.protocol !== kind) return NO_MATCH;
      return both(portIn(packet.sourcePort, source, "source"), () => {
        return portIn(packet.destinationPort, destination, "destination");
      });
    },
    observed: (packet) =>
      destination === undefined
        ? `the source port is ${packet.sourcePort ?? "not known"}`
        : `the destination port is ${packet.destinationPort ?? "not known"}`,
  };
}

function portIn(port: number | undefined, range: PortRange | undefined, side: string): StepResult {
  if (range === undefined) return GO_ON;
  const { from, to, negated } = range;
  if (port !== undefined) return answer(port >= from && port <= to, negated);
  return asked(`the ${side} port is ${from === to ? from : `${from} to ${to}`}`, negated);
}
