/**
 * The answer to a packet that a rule rejects: an ICMP error or a reset, which the node sends by its own output hooks. Without it the
 * sender waits as for a packet that was dropped.
 */
import { isLoopback } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { hasConnection, newPacket, type Packet, WITH_PORTS } from "../packet.ts";
import { type ComparedField, type Question, whichOf } from "../question.ts";
import type { WalkObserver } from "./observer.ts";
import type { Fate, Outcome, WalkOptions } from "./tree.ts";

/**
 * @param walkAnswer where the node's answer goes, with these options.
 * @returns two, with their odds, if chance decides whether the answer arrives, and is not drawn
 */
export function fatesOfRefusal(
  { packet, answer, by }: { readonly packet: Packet; readonly answer: string; readonly by: string },
  facts: NodeFacts,
  { observer, random, ...given }: WalkOptions,
  walkAnswer: (packet: Packet, options: WalkOptions) => Iterable<Outcome>,
): readonly { readonly odds: number; readonly fate: Fate }[] {
  const only = (fate: Fate) => [{ odds: 1, fate }];
  const refused: Fate = { kind: "refused", answer, by };
  const sent = answerTo(packet, answer, facts);
  // Otherwise only a packet that no host accepts has another host's source (a martian).
  const isFromLoopback = packet.family === "IPv4" && packet.isSourceTranslated && isLoopback(sent.source);
  if (isFromLoopback) {
    observer?.asked(facts.about.source, packet);
    // Without it there is no route from a loopback address (net/ipv4/route.c, __mkroute_output).
    const because = "whether the refusal arrives depends on route_localnet of the interface by which it leaves";
    if (facts.addressType(sent.destination) !== "local") return only({ kind: "uncertain", because, by });
  }
  const told = observer && { observer: observerOfAnswer(observer, packet) };
  const ends = Array.from(walkAnswer(sent, { ...given, ...told, record: "ends" }));
  const lost = ends.flatMap(({ fate }) => (fate.kind === "dropped" ? [fate] : []));
  const open = ends.find(({ fate }) => fate.kind === "uncertain")?.fate;
  const [first] = lost;
  if (open === undefined && first === undefined) return only(refused);
  const dropped: Fate = { kind: "dropped", by: `${by}; its answer is dropped by ${first?.by}` };
  if (first !== undefined && lost.length === ends.length) return only(dropped);
  const isByChance = ends.every(({ assumptions, hashed }) => assumptions.length === 0 && !hashed);
  if (open !== undefined || !isByChance)
    return only(open ?? { kind: "uncertain", because: `whether the refusal arrives depends on ${first?.by}`, by });
  const odds = ends.reduce((sum, end) => sum + (end.fate.kind === "dropped" ? end.odds : 0), 0);
  if (random !== undefined) return only(random() >= 1 - odds ? dropped : refused);
  return [
    { odds: 1 - odds, fate: refused },
    { odds, fate: dropped },
  ];
}

/** @param refused as the rule met it. @param text what the rule answers, as its tool prints it. */
function answerTo(refused: Packet, text: string, facts: NodeFacts): Packet {
  const { family, source, sourcePort, destination, destinationPort } = refused;
  const { connectionMark, isDestinationTranslated, isSourceTranslated } = refused;
  const noPorts = { sourcePort: undefined, destinationPort: undefined };
  const original = { ...refused.original, ...(WITH_PORTS.includes(refused.protocol) ? {} : noPorts) };
  const isReset = /reset/.test(text);
  const isOwn = facts.addressType(destination) === "local";
  const answer = newPacket({
    family,
    source: isReset || isOwn ? destination : (facts.ownAddressTowards(source) ?? destination),
    sourcePort: isReset ? destinationPort : undefined,
    destination: source,
    destinationPort: isReset ? sourcePort : undefined,
    protocol: isReset ? "tcp" : family === "IPv4" ? "icmp" : "icmpv6",
    inInterface: "",
    origin: "this-node",
    state: hasConnection(refused) ? "related" : "invalid",
  });
  // It belongs to the refused connection (nf_conntrack_attach): no nat chain is asked (nf_nat_core.c, nf_nat_inet_fn).
  const decided = { isDestinationDecided: true, isSourceDecided: true, isRefusal: true };
  return { ...answer, connectionMark, isDestinationTranslated, isSourceTranslated, original, ...decided };
}

const OPPOSITE: Readonly<Record<string, ComparedField>> = {
  ...{ source: "destination", destination: "source", sourcePort: "destinationPort", destinationPort: "sourcePort" },
};

const OF_PORTS = whichOf("protocol", WITH_PORTS);

/** Reports what the way of an answer depends on as what it means for the packet that was refused. */
function observerOfAnswer(observer: WalkObserver, refused: Packet): WalkObserver {
  return {
    asked(question, answer, chain) {
      const mirrored: Question = {
        ...question,
        fields: question.fields.map((field) => {
          // The connection is the refused packet's.
          if (field?.startsWith("original ")) return field;
          const from = field === undefined ? undefined : OPPOSITE[field];
          // An address of the node in the place of the packet's destination.
          return field === "source" && answer.source !== refused.destination ? undefined : from;
        }),
        values: () => question.values(answer),
      };
      // Whether the refused packet's connection has ports, only where a rule asks for them.
      if (question.fields.some((field) => /^original .*Port$/.test(field ?? ""))) observer.asked(OF_PORTS, refused);
      observer.asked(mirrored, refused, chain);
    },
    unclear: (what) => observer.unclear(what),
    isFar: (table, chain) => observer.isFar?.(table, chain, refused),
  };
}
