/** Ends of a walk in words. */
import type { Outcome } from "../netfilter/tree.ts";
import { endText, type Packet } from "../packet.ts";

/** The packet's fate, and the source that the other end sees. */
export function fateText({ fate, packet }: Pick<Outcome, "fate" | "packet">): string {
  switch (fate.kind) {
    case "sent": {
      const answer =
        fate.isAnswerLost === true ? "; its answer bypasses this node, so the client does not recognise it" : "";
      return `sent to ${destinationText(packet)}, ${sourceText(packet)}${answer}`;
    }
    case "not-led":
      return `not sent to an endpoint: ${fate.because}`;
    case "delivered":
      return `delivered to a process of the node at ${destinationText(packet)}, ${sourceText(packet)}`;
    case "dropped":
      return `dropped by ${fate.by}`;
    case "refused":
      return `refused (${fate.answer}) by ${fate.by}`;
    case "uncertain":
      return `not known: ${fate.because}`;
  }
}

function destinationText({ destination, destinationPort }: Packet): string {
  return endText(destination, destinationPort);
}

function sourceText({ source, isMasqueraded, isSourceKnown, isSourceTranslated }: Packet): string {
  if (!isSourceKnown && !isMasqueraded)
    return isSourceTranslated ? "from an address that is not known (translated)" : `from ${source}, or masqueraded`;
  if (!isSourceKnown) return "from the node's address (masqueraded)";
  if (isMasqueraded) return `from ${source} (masqueraded)`;
  return isSourceTranslated ? `from ${source} (translated)` : `from ${source} (kept)`;
}

/** Odds as a percentage with one decimal; small odds get as many as it takes not to print zero. */
export function oddsText(odds: number): string {
  const percent = odds * 100;
  if (percent === 0 || percent >= 0.05) return `${percent.toFixed(1)} %`;
  return `${percent.toPrecision(1)} %`;
}

/** The packet, and where it comes in. */
export function packetText(packet: Packet): string {
  const from = endText(packet.source, packet.sourcePort);
  const way =
    packet.inInterface === ""
      ? "from the node itself"
      : `coming in by ${packet.inInterface ?? "an interface that is not known"}`;
  const mark = packet.mark === 0 ? "" : `, mark 0x${packet.mark.toString(16)}`;
  return `${packet.protocol} ${from} to ${destinationText(packet)}, ${way}, connection ${packet.state}${mark}`;
}
