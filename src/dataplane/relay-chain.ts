/**
 * The proxy's own sockets as a chain that `trace` walks behind the rules: it takes what is delivered to them, and connects to an
 * endpoint itself (reference userspace.md §1.2). Pure.
 */
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import { joinHostPort, parseHostPort } from "../net/ip.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import type { NodeFacts } from "../trace/facts.ts";
import type { RememberedLists } from "../trace/iptables/surroundings.ts";
import type { Chain, Rule, StepResult } from "../trace/netfilter/program.ts";
import { stickyChoice } from "../trace/netfilter/sticky-choice.ts";
import { masqueraded, newPacket, type Packet } from "../trace/packet.ts";
import { fieldsQuestion, type Key, type Question } from "../trace/question.ts";

/** A socket that the proxy listens on. */
export interface PlannedRelay {
  readonly port: ServicePort;
  /** Whether the client decides about the lane. Rules have done that before. */
  readonly looksAtClient: boolean;
  /** Those of the client's lane; none for a client that is sent away. */
  endpointsFor(client: Packet): readonly Endpoint[];
}

/** By `tcp 10.200.0.2:20000`, the protocol and where the proxy listens: `tcp 20000` where that is each address. Without rules by `tcp 10.96.0.10:80`. */
export type PlannedRelays = ReadonlyMap<string, PlannedRelay>;

/** @param hasRules whether rules lead to the sockets: otherwise these are where Services answer. */
export function relayChain(relays: PlannedRelays, hasRules: boolean): Dump {
  return {
    kind: "chains",
    ownSockets: hasRules ? questionsOf(relays) : [],
    chains(facts, clients) {
      const entries = [...relays];
      const asked = questionsOf(relays);
      const places = new Map(entries.map(([place], index) => [place, index]));
      const chain: Chain = {
        name: "sockets of the proxy",
        asks: () => asked,
        length: entries.length,
        isNumbered: false,
        ruleAt(index) {
          const [place, relay] = entries[index] ?? [];
          return place === undefined || relay === undefined ? undefined : ruleOf(place, relay, facts, clients);
        },
        firstCandidate(index, { protocol, destination, destinationPort = 0 }) {
          const place =
            places.get(`${protocol} ${joinHostPort(destination, destinationPort)}`) ??
            places.get(`${protocol} ${destinationPort}`);
          return place === undefined || place < index ? entries.length : place;
        },
      };
      const base = { table: "kube-proxy", type: "filter", stage: "input", priority: 1_000, policy: "accept" } as const;
      return [{ ...base, chain, chainNamed: () => undefined }];
    },
  };
}

/** Sockets by their port, and by their address and port, which go before. */
function questionsOf(relays: PlannedRelays): Question[] {
  const keys = Array.from(relays.keys(), (place): Key => {
    const [protocol = "", end = ""] = place.split(" ");
    const at = parseHostPort(end);
    const values = at === undefined ? [protocol, Number(end)] : [protocol, at.address, at.port];
    return { patterns: values.map((value) => ({ kind: "exact", value })), outcome: place };
  });
  const withParts = (count: number) => keys.filter(({ patterns }) => patterns.length === count);
  return [
    fieldsQuestion(["protocol", "destination", "destinationPort"], withParts(3)),
    fieldsQuestion(["protocol", "destinationPort"], withParts(2)),
  ];
}

function ruleOf(
  place: string,
  { port, looksAtClient, endpointsFor }: PlannedRelay,
  facts: NodeFacts,
  clients: RememberedLists | undefined,
): Rule {
  const text = `${place} of ${port.name.text}`;
  const run = (packet: Packet): StepResult => {
    const endpoints = endpointsFor(packet);
    const ends = endpoints.map((endpoint) => ({
      end: joinHostPort(endpoint.ip, endpoint.port),
      odds: 1 / endpoints.length,
      result: carried(endpoint, packet, facts),
    }));
    if (ends.length === 0) return { kind: "verdict", verdict: { kind: "reject", answer: "connection closed" } };
    if (port.sessionAffinity !== "ClientIP") return { kind: "choice", options: ends };
    const client = packet.source;
    const question = `${client} has asked in the last ${port.stickyMaxAgeSeconds} s`;
    return stickyChoice(clients, { set: port.name.key, client, question, ends });
  };
  return { text, steps: [{ text, asks: looksAtClient ? undefined : [], isAction: true, run }] };
}

/** A connection of the proxy's own, which goes through the rules as any of the node's. */
function carried(
  { ip: destination, port }: Endpoint,
  packet: Packet,
  facts: NodeFacts,
): StepResult & { kind: "verdict" } {
  const { family, protocol, source } = packet;
  const own = { family, protocol, source, sourcePort: undefined, destination, destinationPort: port, inInterface: "" };
  return {
    kind: "verdict",
    verdict: { kind: "forward-to", stage: "output" },
    packet: masqueraded(newPacket(own), facts.ownAddressTowards(destination)),
    said: `the proxy takes it, and connects to ${joinHostPort(destination, port)}`,
  };
}
