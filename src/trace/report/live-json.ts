/** A live trace as plain data, for programs. Pure. */
import { eventData, packetData } from "./json.ts";
import type { LiveReport } from "./live-text.ts";

/** JSON for one packet. Keys are part of the interface. */
export function liveData({ kernel, simulation, comparison, rules, notes }: LiveReport): object {
  return {
    packet: packetData(kernel.first),
    rules,
    notes,
    kernel: { steps: kernel.events.map(eventData), fate: kernel.fate, packet: packetData(kernel.packet) },
    simulation:
      simulation === undefined
        ? null
        : {
            odds: simulation.odds,
            assumptions: simulation.assumptions,
            steps: simulation.events.map(eventData),
            fate: simulation.fate,
            packet: packetData(simulation.packet),
          },
    isAsSimulated: comparison === undefined ? null : comparison.hasSameSteps && comparison.hasSameEnd,
  };
}
