/** What `kube-proxy prove` answers, as text and as data. */
import type { IpFamily } from "../../net/ip.ts";
import { endText, type Packet } from "../../trace/packet.ts";
import { DECIDED } from "../explain/standing.ts";
import { UDP_LENGTHS } from "../prove/domain.ts";
import { fateText, noticed } from "../prove/fate.ts";
import { ownerAt } from "../prove/node-components.ts";
import type { Counterexample, Proof, Side } from "../prove/proof.ts";
import { SPECIFICATION } from "../prove/sides.ts";

/** What a proof of one node and family found. */
export interface Answer {
  readonly node: string | undefined;
  readonly family: IpFamily;
  readonly sides: readonly [Side, Side];
  readonly proof: Proof;
  /** What the node's daemon has decided by itself, in sentences. @default nothing */
  readonly decided?: readonly string[];
}

/** In the words of `-o json`. */
export function resultOf({ differing, unprovable }: Proof): "different" | "equal" | "cannot be proved" {
  if (differing > 0) return "different";
  return unprovable === undefined ? "equal" : "cannot be proved";
}

/** As text, for people. */
export function answerText(answer: Answer): string {
  const { decided = [] } = answer;
  const ofDaemon = decided.length === 0 ? "" : `${[`  ${DECIDED}`, ...decided].join("\n    ")}\n`;
  return `${proofText(answer)}${ofDaemon}`;
}

function proofText({ node, family, sides, proof }: Answer): string {
  const [one, other] = sides;
  const where = node === undefined ? family : `${node}, ${family}`;
  const isOfServices = one.name === SPECIFICATION;
  const asAsked = isOfServices ? "every packet as the Services ask" : "every packet alike";
  const { classes, differing, examples, unprovable } = proof;
  const time = `${proof.seconds.toFixed(1)} s`;
  const head = `${other.name}${isOfServices ? "" : ` and ${one.name}`} (${where})`;
  if (differing === 0) {
    const treated = `${head}: the rules treat ${asAsked} (${classes} classes of packets, ${time})`;
    if (unprovable === undefined) return `${[treated, ...othersLines(proof)].join("\n")}\n`;
    return `${[`${head}: cannot be proved: ${unprovable}`, ...unprovedLines(proof, "Everything else is equal")].join("\n")}\n`;
  }
  const lines = [
    `${head}: the rules do NOT treat ${asAsked}: ${differing} of ${classes} classes of packets differ, ${time}`,
  ];
  // Differences stay true without it.
  if (unprovable !== undefined)
    lines.push(
      `  Not proved: ${unprovable}`,
      ...unprovedLines(proof, proof.unproved === 0 ? "What was read was compared" : "The others were compared"),
    );
  for (const example of examples) {
    const { packet, fates } = example;
    lines.push(`  ${packetText(packet)}`);
    lines.push(...[one, other].map(({ name }, at) => `    ${name}: ${fateText(fates[at] ?? new Map())}`));
    lines.push(`    clients notice: ${noticed(fates[0], fates[1])}`);
  }
  lines.push(...othersLines(proof));
  const [first] = examples;
  if (first !== undefined) {
    lines.push("", "The first of them:");
    for (const side of sides) lines.push(`  ${side.why(first.packet).trimEnd().replaceAll("\n", "\n  ")}`);
  }
  return `${lines.join("\n")}\n`;
}

/** The packets that meet something that is not understood, and what is known of the others. */
function unprovedLines({ unprovable, classes, unproved, doubts, gaps }: Proof, others: string): string[] {
  const more = doubts.filter((doubt) => doubt !== unprovable).map((doubt) => `  Also: ${doubt}`);
  const met = gaps.map(({ because, packet }) => {
    const what = because === unprovable ? "" : `${because}: `;
    return `  ${what}such as ${packetText(packet)}`;
  });
  const compared = unproved === 0 ? `${classes}` : `${classes - unproved} of ${classes}`;
  const rest = unproved < classes ? [`  ${others}: ${compared} classes of packets.`] : [];
  return [...more, ...met, ...rest];
}

/** What kubelet, CNI plugins and others do on the node, beside the proxy. */
function othersLines({ others: { classes, examples } }: Proof): string[] {
  if (classes === 0) return [];
  const found = examples.map(({ packet, fate, by }) => {
    const owner = by === undefined ? undefined : ownerAt(by);
    const whose = by === undefined ? "" : ` by ${owner === undefined ? by : `${owner}, not by the proxy: ${by}`}`;
    return `    ${packetText(packet)}: ${fateText(fate)}${whose}`;
  });
  return [`  What the rest of the node changes (classes: ${classes}; --whole-node):`, ...found];
}

function packetText(packet: Packet): string {
  const { protocol, source, sourcePort, destination, destinationPort, inInterface, bridgePort, udpLength } = packet;
  const port = bridgePort === "" || bridgePort === undefined ? "" : `, port ${bridgePort} of a bridge`;
  const from = inInterface === "" ? "a process of the node" : `a client by ${inInterface}${port}`;
  const isUsual = protocol !== "udp" || udpLength === UDP_LENGTHS.sample();
  const length = isUsual ? "" : `, of length ${udpLength}`;
  return `${protocol} from ${from}, ${endText(source, sourcePort)}, to ${endText(destination, destinationPort)}${length}`;
}

/** As data, for programs. */
export function answerData({ node, family, sides, proof, decided = [] }: Answer) {
  const { unprovable, classes, differing, seconds, examples, unproved, doubts, gaps, others } = proof;
  return {
    node: node ?? null,
    family,
    sides: sides.map(({ name }) => name),
    result: resultOf(proof),
    because: unprovable ?? null,
    classes,
    differing,
    unproved,
    gaps: [
      ...doubts.map((because) => ({ because, packet: null })),
      ...gaps.map(({ because, packet }) => ({ because, packet: packetData(packet) })),
    ],
    ofOtherPrograms: {
      classes: others.classes,
      examples: others.examples.map((one) => ({ ...one, packet: packetData(one.packet), fate: fateText(one.fate) })),
    },
    ofDaemon: decided,
    seconds,
    examples: examples.map((example) => exampleData(example, sides)),
  };
}

function packetData({ protocol, source, sourcePort, destination, destinationPort, inInterface, bridgePort }: Packet) {
  return { protocol, source, sourcePort, destination, destinationPort, inInterface, bridgePort };
}

function exampleData({ packet, fates }: Counterexample, sides: readonly Side[]) {
  return {
    packet: packetData(packet),
    service: sides.map((side) => side.serviceOf?.(packet)).find((name) => name !== undefined) ?? null,
    fates: fates.map(fateText),
    clientsNotice: noticed(fates[0], fates[1]),
    why: sides.map((side) => side.why(packet)),
  };
}
