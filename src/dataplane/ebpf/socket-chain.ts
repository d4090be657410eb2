/** Where sockets of this node are led, as a chain that `trace` walks before the packet's first hook (reference ebpf.md §1.1). Pure. */
import { type IpAddress, isLoopback, joinHostPort, parseHostPort } from "../../net/ip.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { NodeFacts } from "../../trace/facts.ts";
import type { RememberedLists } from "../../trace/iptables/surroundings.ts";
import type { Chain, Rule, StepResult } from "../../trace/netfilter/program.ts";
import { stickyChoice } from "../../trace/netfilter/sticky-choice.ts";
import { askingFor, type Packet } from "../../trace/packet.ts";
import { fieldsQuestion, type Key, type Question, whichOf } from "../../trace/question.ts";
import type { Pattern } from "../../trace/value.ts";
import type { LedSocket } from "../inspection.ts";
import { socketText } from "../socket-words.ts";

/** @param sockets by address, as `LiveSockets` has them. @param answering the node's addresses at which node ports answer. */
export function socketChain(
  sockets: ReadonlyMap<string, LedSocket>,
  answering: readonly IpAddress[],
  name: string,
): Dump {
  // As in nftables mode, not at loopback.
  const own = new Set(answering.filter((address) => !isLoopback(address)));
  const placeOf = ({ protocol, destination, destinationPort = 0 }: Packet): string | undefined => {
    const word = protocol.toUpperCase();
    const places = [`${word} ${joinHostPort(destination, destinationPort)}`];
    // A datagram to a node port may be the answer of a server here: it takes the rules.
    if (protocol === "tcp" && own.has(destination)) places.push(`${word} *:${destinationPort}`);
    return places.find((place) => sockets.has(place));
  };
  return {
    kind: "chains",
    chains(facts, clients) {
      // A packet meets one entry at most: that of its destination.
      let rule: Rule | undefined;
      const chain: Chain = {
        name,
        length: 1,
        isNumbered: false,
        asks: () => asked,
        ruleAt: () => rule,
        firstCandidate(index, packet) {
          const place = placeOf(packet);
          const led = place === undefined ? undefined : sockets.get(place);
          rule = place === undefined || led === undefined ? undefined : ruleOf(place, led, facts, clients);
          return rule === undefined ? 1 : index;
        },
      };
      const asked = questionsOf([...sockets.keys()], [...own]);
      const base = { table: "connect()", type: "filter", stage: "socket", priority: 0, policy: "accept" } as const;
      return [{ ...base, chain, chainNamed: () => undefined }];
    },
  };
}

/** What decides which socket is led where: the place that it asks for, and whether it is one of the node's own processes. */
function questionsOf(places: readonly string[], own: readonly IpAddress[]): Question[] {
  const keys = places.map((place): Key & { readonly isNodePort: boolean } => {
    const [word = "", end = ""] = place.split(" ");
    const at = parseHostPort(end);
    const values = [word.toLowerCase(), ...(at === undefined ? [Number(end.slice(2))] : [at.address, at.port])];
    const patterns = values.map((value): Pattern => ({ kind: "exact", value }));
    return { patterns, outcome: place, isNodePort: at === undefined };
  });
  return [
    fieldsQuestion(
      ["protocol", "destination", "destinationPort"],
      keys.filter(({ isNodePort }) => !isNodePort),
    ),
    whichOf("destination", own),
    fieldsQuestion(
      ["protocol", "destinationPort"],
      keys.filter(({ isNodePort }) => isNodePort),
    ),
    whichOf("inInterface", [""]),
  ];
}

function ruleOf(place: string, led: LedSocket, facts: NodeFacts, clients: RememberedLists | undefined): Rule {
  const text = `${place} ${socketText(led)}`;
  return {
    text,
    steps: [{ text, asks: [], isAction: true, run: (packet) => decision(place, led, packet, facts, clients) }],
  };
}

function decision(
  place: string,
  { clients: led, isRefused, endpoints, affinitySeconds }: LedSocket,
  packet: Packet,
  facts: NodeFacts,
  clients: RememberedLists | undefined,
): StepResult {
  const accept = { kind: "verdict", verdict: { kind: "accept" } } as const;
  const isOfOthers = led === "none" || (led === "host" && packet.inInterface !== "");
  // A datagram is refused by the rules.
  if (isOfOthers || (isRefused && packet.protocol !== "tcp"))
    return { ...accept, said: "nothing is decided here: it takes the rules" };
  if (isRefused) return { kind: "verdict", verdict: { kind: "reject", answer: "connection refused" } };
  const ends = endpoints.flatMap((endpoint) => {
    const end = parseHostPort(endpoint);
    if (end === undefined) return [];
    // The node asks from the address that leads there, where that is known.
    const source = packet.inInterface === "" ? facts.ownAddressTowards(end.address) : undefined;
    const asking = askingFor({ ...packet, source: source ?? packet.source }, end.address, end.port);
    const result = { ...accept, packet: asking, said: `the socket asks for ${endpoint}` };
    return [{ end: endpoint, odds: 1 / endpoints.length, result }];
  });
  if (affinitySeconds === 0) return { kind: "choice", options: ends };
  const question = `${packet.source} has asked in the last ${affinitySeconds} s`;
  return stickyChoice(clients, { set: place, client: packet.source, question, ends });
}
