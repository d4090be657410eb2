/** Whether a question needs to be answered at all. Pure. */
import type { Packet } from "../packet.ts";
import { GO_ON, type Rule } from "./program.ts";

/** Whether a later condition of the rule fails for certain, before anything is done. */
export function failsLater(rule: Rule, at: number, packet: Packet): boolean {
  for (const step of rule.steps.slice(at + 1)) {
    const result = step.run(packet);
    if (result.kind === "no-match") return true;
    if (result !== GO_ON && result.kind !== "unknown") return false;
  }
  return false;
}
