/** Models redirection at the socket as a chain that `trace` walks before the packet's first hook (reference ebpf.md §1.1). */

import type { LedSocket } from "../../contract/inspection.ts";
import { socketText } from "../../contract/socket-words.ts";
import { type IpAddress, isLoopback, joinHostPort, parseHostPort } from "../../net/ip.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { NodeFacts } from "../../trace/facts.ts";
import type { RememberedLists } from "../../trace/iptables/surroundings.ts";
import { destinationChain, placeQuestions, stickyChoice } from "../../trace/netfilter/destinations.ts";
import type { Rule, StepResult } from "../../trace/netfilter/program.ts";
import { askingFor, type Packet } from "../../trace/packet.ts";
import { whichOf } from "../../trace/question.ts";

/**
 * @param sockets by address, as in `LiveSockets`. @param answering the node's addresses that serve node ports.
 * @param pods whether sockets at these addresses are redirected. @default what is planned, for those that will be
 */
export function socketChain(
  sockets: ReadonlyMap<string, LedSocket>,
  answering: readonly IpAddress[],
  name: string,
  pods?: ReadonlyMap<IpAddress, boolean>,
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
        ruleOf: (place, led) => ruleOf(place, led, { facts, clients, pods }),
      }),
    ],
  };
}

/** What a choice at the socket depends on beside the socket. */
interface Surroundings {
  readonly facts: NodeFacts;
  readonly clients: RememberedLists | undefined;
  readonly pods: ReadonlyMap<IpAddress, boolean> | undefined;
}

const ACCEPT = { kind: "verdict", verdict: { kind: "accept" } } as const;

function ruleOf(place: string, led: LedSocket, around: Surroundings): Rule {
  const text = `${place} ${socketText(led)}`;
  return { text, steps: [{ text, asks: [], isAction: true, run: (packet) => decision(place, led, packet, around) }] };
}

function decision(place: string, led: LedSocket, packet: Packet, around: Surroundings): StepResult {
  const isPod = packet.inInterface !== "";
  const isOfOthers = led.clients === "none" || (led.clients === "host" && isPod);
  // The rules reject datagrams.
  if (isOfOthers || (led.isRefused && packet.protocol !== "tcp"))
    return { ...ACCEPT, said: "nothing is decided here: it takes the rules" };
  const isLed = !isPod || around.pods === undefined || around.pods.get(packet.source);
  const no = { ...ACCEPT, said: `sockets of ${packet.source} are not redirected: it takes the rules` };
  if (isLed === false) return no;
  const yes = choice(place, led, packet, around);
  return isLed === true ? yes : { kind: "unknown", question: `sockets of ${packet.source} are redirected`, yes, no };
}

function choice(
  place: string,
  { isRefused, endpoints, affinitySeconds }: LedSocket,
  packet: Packet,
  { facts, clients, pods }: Surroundings,
): StepResult {
  if (isRefused) return { kind: "verdict", verdict: { kind: "reject", answer: "connection refused" } };
  const isHost = packet.inInterface === "";
  const condition = isHost || pods !== undefined ? "" : ", if its network namespace is recognised as a pod's";
  // One with a weight stands several times.
  const ends = [...Map.groupBy(endpoints, (endpoint) => endpoint)].flatMap(([endpoint, { length }]) => {
    const end = parseHostPort(endpoint);
    if (end === undefined) return [];
    // The node uses its address towards the endpoint as the source, if that is known.
    const source = isHost ? facts.ownAddressTowards(end.address) : undefined;
    const asking = askingFor({ ...packet, source: source ?? packet.source }, end.address, end.port);
    const result = { ...ACCEPT, packet: asking, said: `the socket asks for ${endpoint}${condition}` };
    return [{ end: endpoint, odds: length / endpoints.length, result }];
  });
  if (affinitySeconds === 0) return { kind: "choice", options: ends };
  const question = `${packet.source} has asked in the last ${affinitySeconds} s`;
  return stickyChoice(clients, { set: place, client: packet.source, question, ends });
}
