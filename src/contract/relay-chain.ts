/**
 * The proxy's own sockets as a chain that `trace` walks behind the rules: it takes what is delivered to them, and
 * connects to an endpoint itself (reference userspace.md §1.2).
 */
import { sharesOf } from "../model/cells.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import { chooserOf } from "../model/sparse-tables.ts";
import type { Hashing } from "../net/balancing.ts";
import { joinHostPort } from "../net/ip.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import type { NodeFacts } from "../trace/facts.ts";
import type { RememberedLists } from "../trace/iptables/surroundings.ts";
import { destinationChain, placeQuestions, stickyChoice } from "../trace/netfilter/destinations.ts";
import type { Rule, StepResult } from "../trace/netfilter/program.ts";
import { masqueraded, newPacket, type Packet } from "../trace/packet.ts";

/** A listening socket of the proxy. */
export interface PlannedRelay {
  readonly port: ServicePort;
  /** Whether the endpoints depend on the client; false if rules have already decided that. */
  readonly looksAtClient: boolean;
  /** The endpoints for a client; none for a client whose connection is closed. */
  endpointsFor(client: Packet): readonly Endpoint[];
}

/** By protocol and listening address: `tcp 10.200.0.2:20000`, `tcp 20000` for every address, or a Service's own `tcp 10.96.0.10:80`. */
export type PlannedRelays = ReadonlyMap<string, PlannedRelay>;

/**
 * @param hasRules whether rules lead to the sockets; otherwise they are at the addresses of Services.
 * @param hashSeed of the hashes that Services ask for; undefined: the sockets take turns all the same.
 */
export function relayChain(relays: PlannedRelays, hasRules: boolean, hashSeed?: number): Dump {
  const asked = placeQuestions(relays.keys());
  return {
    kind: "chains",
    ownSockets: hasRules ? asked : [],
    chains: (facts, clients) => [
      destinationChain({
        ...{ table: "kube-proxy", stage: "input", priority: 1_000, name: "sockets of the proxy" },
        entries: relays,
        asks: () => asked,
        placeOf({ protocol, destination, destinationPort = 0 }) {
          const place = `${protocol} ${joinHostPort(destination, destinationPort)}`;
          return relays.has(place) ? place : `${protocol} ${destinationPort}`;
        },
        ruleOf: (place, relay) => ruleOf(place, relay, { facts, clients, hashSeed }),
      }),
    ],
  };
}

function ruleOf(
  place: string,
  { port, looksAtClient, endpointsFor }: PlannedRelay,
  {
    facts,
    clients,
    hashSeed,
  }: { facts: NodeFacts; clients: RememberedLists | undefined; hashSeed: number | undefined },
): Rule {
  const text = `${place} of ${port.name.text}`;
  const run = (packet: Packet): StepResult => {
    const endpoints = endpointsFor(packet);
    const shares = sharesOf(endpoints);
    const ends = endpoints.map((endpoint, index) => ({
      end: joinHostPort(endpoint.ip, endpoint.port),
      odds: shares[index] ?? 0,
      result: carried(endpoint, packet, facts),
    }));
    if (ends.length === 0) return { kind: "verdict", verdict: { kind: "reject", answer: "connection closed" } };
    const taken = hashSeed === undefined ? undefined : hashedIndex(port.balancing, endpoints, packet, hashSeed);
    if (port.sessionAffinity !== "ClientIP") return { kind: "choice", options: ends, taken };
    const client = packet.source;
    const question = `${client} has asked in the last ${port.stickyMaxAgeSeconds} s`;
    return stickyChoice(clients, { set: port.name.key, client, question, ends, taken });
  };
  return { text, steps: [{ text, asks: looksAtClient ? undefined : [], isAction: true, run }] };
}

/** The index of the endpoint that a hash chooses; undefined: by chance, or the client's port is not known. */
function hashedIndex(
  hashing: Hashing | undefined,
  endpoints: readonly Endpoint[],
  { source: address, sourcePort }: Packet,
  seed: number,
): number | undefined {
  if (hashing === undefined || (hashing === "FlowHash" && sourcePort === undefined)) return undefined;
  const chosen = chooserOf(hashing, endpoints, seed)?.({ address, port: sourcePort ?? 0 });
  return chosen && endpoints.indexOf(chosen);
}

/** The proxy's own connection, which passes the rules like any other of the node. */
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
