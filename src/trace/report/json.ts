/** A trace as plain data, for programs: the tree as walked, and its outcomes. */
import { outcomesOf, type TraceEvent, type TraceNode } from "../netfilter/tree.ts";
import type { Packet } from "../packet.ts";
import type { TraceReport } from "./text.ts";

/** JSON for {@link TraceReport}. Keys are part of the interface. */
export function traceData({ packet, rules, notes, root }: TraceReport): object {
  return {
    packet: packetData(packet),
    rules,
    notes,
    outcomes: Array.from(outcomesOf(root), ({ odds, assumptions, fate, packet: end }) => {
      return { odds, assumptions, fate, packet: packetData(end) };
    }),
    trace: nodeData(root),
  };
}

/** A packet at some point of its path. `source` is null if it is an unknown address of the node. */
export function packetData(packet: Packet): object {
  const { family, protocol, sourcePort, destination, destinationPort, inInterface, outInterface } = packet;
  const source = packet.isSourceKnown ? packet.source : null;
  const { mark, state, isDestinationTranslated, isSourceTranslated, isMasqueraded, virtualServer } = packet;
  return {
    ...{ family, protocol, source, sourcePort, destination, destinationPort, inInterface, outInterface },
    ...{ mark, state, isDestinationTranslated, isSourceTranslated, isMasqueraded, virtualServer },
  };
}

function nodeData({ events, end }: TraceNode): object {
  const steps = events.map(eventData);
  if (end.kind === "end") return { steps, fate: end.fate, packet: packetData(end.packet), entries: end.entries };
  const branches = end.branches.map(({ odds, label, node }) => ({ odds, label, ...nodeData(node) }));
  return { steps, question: end.question, branches };
}

/** One step as plain data. */
export function eventData(event: TraceEvent): object {
  switch (event.kind) {
    case "stage":
      return { kind: event.kind, stage: event.stage };
    case "base-chain":
    case "policy": {
      const { table, chain, priority, policy } = event.chain;
      return { kind: event.kind, table, chain: chain.name, priority, policy };
    }
    case "not-asked":
      return { kind: event.kind, table: event.chain.table, chain: event.chain.chain.name, because: event.because };
    case "no-match": {
      const { kind, chain, index, rule, condition, observed } = event;
      return { kind, chain, rule: index < 0 ? undefined : index + 1, text: rule.text, condition, observed };
    }
    case "match": {
      const { kind, chain, index, rule, said } = event;
      return { kind, chain, rule: index < 0 ? undefined : index + 1, text: rule.text, comment: rule.comment, said };
    }
    case "remark":
    case "skipped":
    case "routed":
      return event;
  }
}
