/** A live trace for people: the kernel's path in the form of a simulated one. Marks show steps that only one of the two has. */
import { escapeLine } from "../../logging/escape.ts";
import type { JudgedPacket } from "../live/judge.ts";
import { fateText, oddsText } from "./fate-text.ts";
import { eventData, packetData } from "./json.ts";
import { eventLines, headLines } from "./text.ts";

export interface LiveReport extends JudgedPacket {
  /** The rules it was compared with, in words. */
  readonly rules: string;
  readonly notes: readonly string[];
}

const MARKS = { both: "  ", kernel: "+ ", simulation: "- " } as const;

/** The whole text, with a newline at its end. Text from rules and names is escaped. */
export function liveText(report: LiveReport): string {
  const lines = [
    ...headLines({ ...report, packet: report.kernel.first }),
    ...pathLines(report),
    "",
    `What became of it: ${endText(report)}`,
    ...verdictLines(report),
  ];
  return `${lines.map(escapeLine).join("\n")}\n`;
}

function pathLines({ kernel, comparison }: LiveReport): string[] {
  if (comparison === undefined) return kernel.events.flatMap((event) => eventLines(event, "", ""));
  const isSame = comparison.hasSameSteps;
  return comparison.steps.flatMap(({ side, event }) => eventLines(event, isSame ? "" : MARKS[side], ""));
}

function verdictLines({ comparison, simulation }: LiveReport): string[] {
  if (comparison === undefined || simulation === undefined) {
    return ["There are too many ways to simulate, so there is no comparison."];
  }
  const { hasSameSteps, hasSameEnd } = comparison;
  if (hasSameSteps && hasSameEnd) {
    const { odds, assumptions } = simulation;
    const chance = odds === 1 ? "" : `, one way among several: its odds are ${oddsText(odds)}`;
    return [
      `The simulation says the same${chance}.`,
      ...(assumptions.length === 0 ? [] : [`It also shows: ${assumptions.join(", and ")}.`]),
    ];
  }
  const marks = hasSameSteps ? "" : " Lines with + are the kernel's alone, those with - the simulation's.";
  return [`The simulation differs: ${fateText(simulation)}.${marks}`];
}

/** The packet's fate, and by which interface it left. Only the simulation knows whether the source is masqueraded. */
function endText({ kernel: { fate, packet }, simulation, comparison }: LiveReport): string {
  const { outInterface } = packet;
  const isMasqueraded = comparison?.hasSameEnd === true && simulation?.packet.isMasqueraded === true;
  const way = fate.kind === "sent" && outInterface !== undefined && outInterface !== "" ? `, by ${outInterface}` : "";
  return `${fateText({ fate, packet: { ...packet, isMasqueraded } })}${way}`;
}

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
