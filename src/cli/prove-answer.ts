/** What `kube-proxy prove` answers: as text, and as data. Pure. */

import type { IpFamily } from "../net/ip.ts";
import { fateText, noticed } from "../prove/fate.ts";
import type { Counterexample, Proof, Side } from "../prove/proof.ts";
import { endText, type Packet } from "../trace/packet.ts";

export interface Answer {
  readonly node: string | undefined;
  readonly family: IpFamily;
  readonly sides: readonly [Side, Side];
  readonly proof: Proof;
}

export function answerText({ node, family, sides, proof }: Answer): string {
  const [one, other] = sides;
  const where = node === undefined ? family : `${node}, ${family}`;
  const { classes, differing, examples, unprovable } = proof;
  const time = `${proof.seconds.toFixed(1)} s`;
  const head = `${other.name} and ${one.name} (${where})`;
  if (unprovable !== undefined) return `${head}: cannot be proved: ${unprovable}\n`;
  if (differing === 0) return `${head}: equal for all packets: ${classes} classes, ${time}\n`;
  const lines = [`${head}: NOT equal: ${differing} of ${classes} classes of packets, ${time}`];
  for (const example of examples) {
    const { packet, fates } = example;
    lines.push(`  ${packetText(packet)}`);
    lines.push(...[one, other].map(({ name }, at) => `    ${name}: ${fateText(fates[at] ?? new Map())}`));
    lines.push(`    clients notice: ${noticed(fates[0], fates[1])}`);
  }
  const [first] = examples;
  if (first !== undefined) {
    lines.push("", "The first of them:");
    for (const side of sides) lines.push(...indented(side.why(first.packet)));
  }
  return `${lines.join("\n")}\n`;
}

function indented(text: string): string[] {
  return text
    .trimEnd()
    .split("\n")
    .map((line) => `  ${line}`);
}

function packetText(packet: Packet): string {
  const { protocol, source, sourcePort, destination, destinationPort, inInterface, bridgePort } = packet;
  const port = bridgePort === "" || bridgePort === undefined ? "" : `, port ${bridgePort} of a bridge`;
  const from = inInterface === "" ? "a process of the node" : `a client by ${inInterface}${port}`;
  return `${protocol} from ${from}, ${endText(source, sourcePort)}, to ${endText(destination, destinationPort)}`;
}

export function answerData({ node, family, sides, proof }: Answer) {
  const { unprovable, classes, differing, seconds, examples } = proof;
  return {
    node: node ?? null,
    family,
    sides: sides.map(({ name }) => name),
    result: unprovable !== undefined ? "cannot be proved" : differing > 0 ? "different" : "equal",
    because: unprovable ?? null,
    classes,
    differing,
    seconds,
    examples: examples.map((example) => exampleData(example, sides)),
  };
}

function exampleData({ packet, fates }: Counterexample, sides: readonly Side[]) {
  const { protocol, source, sourcePort, destination, destinationPort, inInterface, bridgePort } = packet;
  return {
    packet: { protocol, source, sourcePort, destination, destinationPort, inInterface, bridgePort },
    service: sides.map((side) => side.serviceOf?.(packet)).find((name) => name !== undefined) ?? null,
    fates: fates.map(fateText),
    clientsNotice: noticed(fates[0], fates[1]),
    why: sides.map((side) => side.why(packet)),
  };
}
