/** What masquerading, redirection and copying do to a packet, whichever tool made the rule. */
import type { IpAddress } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import { masqueraded, type Packet, redirectAddress, withDestination } from "../packet.ts";
import { whichOf } from "../question.ts";
import { GO_ON, type Step, type StepResult } from "./program.ts";

/** A translation ends its base chain: the kernel accepts the packet. */
export function translated(packet: Packet, said: string): StepResult {
  return { kind: "verdict", verdict: { kind: "accept" }, packet, said };
}

export function masquerade(packet: Packet, facts: NodeFacts): StepResult {
  const address = facts.ownAddressTowards(packet.destination);
  const said = `masquerade: the source becomes ${address ?? `the node's address towards ${packet.destination}`}`;
  return translated(masqueraded(packet, address), said);
}

/** @param port undefined: the packet's own. */
export function redirect(packet: Packet, port: number | undefined, facts: NodeFacts): StepResult {
  const changed = withDestination(packet, redirectAddress(packet, facts.ownAddressTowards(packet.source)), port);
  return translated(changed, `redirect to port ${changed.destinationPort} of the node itself`);
}

/** The packet goes on. A machine that gets copies of its own connection, without their translation, resets it. @param to undefined: not known */
export function copyStep(text: string, to: IpAddress | undefined): Step {
  const because = `${text} may send copies to an end of the connection, which ends it`;
  return {
    text,
    asks: to === undefined ? [] : [whichOf("source", [to]), whichOf("destination", [to])],
    isAction: true,
    run: ({ source, destination }) =>
      to === undefined || source === to || destination === to ? { kind: "lost", because } : GO_ON,
  };
}
