/**
 * The proxy's own sockets as a chain that `trace` walks behind the rules: it takes what is delivered to them, and connects to an
 * endpoint itself (reference userspace.md §1.2). Pure.
 */
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import { joinHostPort } from "../net/ip.ts";
import type { Dump } from "../trace/dump/recognise.ts";
import type { NodeFacts } from "../trace/facts.ts";
import type { Chain, Rule, StepResult } from "../trace/netfilter/program.ts";
import { masqueraded, newPacket, type Packet } from "../trace/packet.ts";

/** A socket that the proxy listens on. */
export interface PlannedRelay {
  readonly port: ServicePort;
  /** Those of the client's lane; none for a client that is sent away. */
  endpointsFor(client: Packet): readonly Endpoint[];
}

/** By `tcp 20000`, the protocol and the proxy's own port; without rules by `tcp 10.96.0.10:80`. */
export type PlannedRelays = ReadonlyMap<string, PlannedRelay>;

export function relayChain(relays: PlannedRelays): Dump {
  return {
    kind: "chains",
    chains(facts, knowsClients) {
      const entries = [...relays];
      const places = new Map(entries.map(([place], index) => [place, index]));
      const chain: Chain = {
        name: "sockets of the proxy",
        length: entries.length,
        isNumbered: false,
        ruleAt(index) {
          const [place, relay] = entries[index] ?? [];
          return place === undefined || relay === undefined ? undefined : ruleOf(place, relay, facts, knowsClients);
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

function ruleOf(place: string, { port, endpointsFor }: PlannedRelay, facts: NodeFacts, knowsClients: boolean): Rule {
  const text = `${place} of ${port.name.text}`;
  const run = (packet: Packet): StepResult => {
    const endpoints = endpointsFor(packet);
    const options = endpoints.map((endpoint) => ({
      odds: 1 / endpoints.length,
      result: carried(endpoint, packet, facts),
    }));
    const chosen: StepResult =
      options.length === 0
        ? { kind: "verdict", verdict: { kind: "reject", answer: "connection closed" } }
        : { kind: "choice", options };
    if (port.sessionAffinity !== "ClientIP" || knowsClients) return chosen;
    const because = "it goes to the endpoint of the client's earlier connections";
    const question = `${packet.source} has asked in the last ${port.stickyMaxAgeSeconds} s`;
    return { kind: "unknown", question, yes: { kind: "lost", because }, no: chosen };
  };
  return { text, steps: [{ text, isAction: true, run }] };
}

/** A connection of the proxy's own, which goes through the rules as any of the node's. */
function carried({ ip: destination, port }: Endpoint, packet: Packet, facts: NodeFacts): StepResult {
  const { family, protocol, source } = packet;
  const own = { family, protocol, source, sourcePort: undefined, destination, destinationPort: port, inInterface: "" };
  return {
    kind: "verdict",
    verdict: { kind: "forward-to", stage: "output" },
    packet: masqueraded(newPacket(own), facts.ownAddressTowards(destination)),
    said: `the proxy takes it, and connects to ${joinHostPort(destination, port)}`,
  };
}
