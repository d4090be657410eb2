/** Models redirection at the socket as a chain that `trace` walks before the packet's first hook (reference ebpf.md §1.1). */
import { type IpAddress, isLoopback, joinHostPort, parseHostPort } from "../../net/ip.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { NodeFacts } from "../../trace/facts.ts";
import type { RememberedLists } from "../../trace/iptables/surroundings.ts";
import { destinationChain, placeQuestions, stickyChoice } from "../../trace/netfilter/destinations.ts";
import type { Rule, StepResult } from "../../trace/netfilter/program.ts";
import { askingFor, type Packet } from "../../trace/packet.ts";
import { whichOf } from "../../trace/question.ts";
import type { LedSocket } from "../inspection.ts";
import { socketText } from "../socket-words.ts";

/** @param sockets by address, as in `LiveSockets`. @param answering the node's addresses that serve node ports. */
export function socketChain(
  sockets: ReadonlyMap<string, LedSocket>,
  answering: readonly IpAddress[],
  name: string,
): Dump {
  // As in nftables mode, not at loopback addresses.
  const own = new Set(answering.filter((address) => !isLoopback(address)));
  const placeOf = ({ protocol, destination, destinationPort = 0 }: Packet): string | undefined => {
    const word = protocol.toUpperCase();
    const places = [`${word} ${joinHostPort(destination, destinationPort)}`];
    // A datagram to a node port may be an answer from a server on this node: the rules decide.
    if (protocol === "tcp" && own.has(destination)) places.push(`${word} *:${destinationPort}`);
    return places.find((place) => sockets.has(place));
  };
  const [byAddress, byPort] = placeQuestions(sockets.keys());
  // The requested place, and whether the client is one of the node's own processes.
  const asked = [byAddress, whichOf("destination", [...own]), byPort, whichOf("inInterface", [""])];
  return {
    kind: "chains",
    chains: (facts, clients) => [
      destinationChain({
        ...{ table: "connect()", stage: "socket", priority: 0, name },
        entries: sockets,
        asks: () => asked,
        placeOf,
        ruleOf: (place, led) => ruleOf(place, led, facts, clients),
      }),
    ],
  };
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
  // The rules reject datagrams.
  if (isOfOthers || (isRefused && packet.protocol !== "tcp"))
    return { ...accept, said: "nothing is decided here: it takes the rules" };
  if (isRefused) return { kind: "verdict", verdict: { kind: "reject", answer: "connection refused" } };
  const ends = endpoints.flatMap((endpoint) => {
    const end = parseHostPort(endpoint);
    if (end === undefined) return [];
    // The node uses its address towards the endpoint as the source, if that is known.
    const source = packet.inInterface === "" ? facts.ownAddressTowards(end.address) : undefined;
    const asking = askingFor({ ...packet, source: source ?? packet.source }, end.address, end.port);
    const result = { ...accept, packet: asking, said: `the socket asks for ${endpoint}` };
    return [{ end: endpoint, odds: 1 / endpoints.length, result }];
  });
  if (affinitySeconds === 0) return { kind: "choice", options: ends };
  const question = `${packet.source} has asked in the last ${affinitySeconds} s`;
  return stickyChoice(clients, { set: place, client: packet.source, question, ends });
}
