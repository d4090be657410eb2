/** The targets of iptables as steps of a walk. */
import type { KernelTarget } from "../../kernel/iptables/parser/kernel-rule.ts";
import { printTarget } from "../../kernel/iptables/parser/rule-targets.ts";
import type { Step, StepResult } from "../netfilter/program.ts";
import { endText, masqueraded, type Packet, redirectAddress, withDestination } from "../packet.ts";
import type { Surroundings } from "./surroundings.ts";

const ACCEPT = { kind: "accept" } as const;

/** Compiles a target; undefined for a rule that only counts. Pure. */
export function targetStep(target: KernelTarget, { facts }: Surroundings): Step | undefined {
  if (target.kind === "none") return undefined;
  const asks =
    target.kind === "MASQUERADE" ? [facts.about.destination] : target.kind === "REDIRECT" ? [facts.about.source] : [];
  return { text: printTarget(target), asks, isAction: true, run: (packet) => act(target, packet) };

  function act(chosen: Exclude<KernelTarget, { kind: "none" }>, packet: Packet): StepResult {
    switch (chosen.kind) {
      case "jump":
      case "goto":
        return { kind: "verdict", verdict: chosen };
      case "ACCEPT":
        return { kind: "verdict", verdict: ACCEPT };
      case "DROP":
        return { kind: "verdict", verdict: { kind: "drop" } };
      case "RETURN":
        return { kind: "verdict", verdict: { kind: "return" } };
      case "REJECT":
        return { kind: "verdict", verdict: { kind: "reject", answer: chosen.with } };
      case "MARK": {
        const mark = ((packet.mark & ~chosen.mask) ^ chosen.value) >>> 0;
        return { kind: "go-on", packet: { ...packet, mark }, said: `mark 0x${mark.toString(16)}` };
      }
      case "MASQUERADE": {
        const address = facts.ownAddressTowards(packet.destination);
        const said = `masquerade: the source becomes ${address ?? `the node's address towards ${packet.destination}`}`;
        return { kind: "verdict", verdict: ACCEPT, packet: masqueraded(packet, address), said };
      }
      case "REDIRECT": {
        const own = redirectAddress(packet, facts.ownAddressTowards(packet.source));
        const changed = withDestination(packet, own, chosen.ports?.from);
        const said = `redirect to port ${changed.destinationPort} of the node itself`;
        return { kind: "verdict", verdict: ACCEPT, packet: changed, said };
      }
      case "DNAT": {
        const { address, port } = chosen;
        const said = `dnat to ${endText(address, port)}`;
        return { kind: "verdict", verdict: ACCEPT, packet: withDestination(packet, address, port), said };
      }
    }
  }
}
