/** What the kernel did beside what the simulation says: which steps both have, and which only one of them. Pure. */
import type { TraceEvent } from "../netfilter/tree.ts";
import { groupsOf, type StepGroup, type Way } from "./way.ts";

/** A step, and who has it. */
interface ComparedStep {
  readonly side: "both" | "kernel" | "simulation";
  /** The simulation's where both have it: it says more. */
  readonly event: TraceEvent;
}

export interface Comparison {
  readonly steps: readonly ComparedStep[];
  readonly hasSameSteps: boolean;
  readonly hasSameEnd: boolean;
}

/** Compares two ways. */
export function compareWays(kernel: Way, simulation: Way): Comparison {
  const steps = comparedSteps(kernel.events, simulation.events);
  return {
    steps,
    hasSameSteps: steps.every(({ side }) => side === "both"),
    hasSameEnd: isSameEnd(kernel, simulation),
  };
}

/** Whether the same became of the packet. Of a masqueraded source, the simulation may not know the address. */
export function isSameEnd(kernel: Pick<Way, "fate" | "packet">, simulation: Pick<Way, "fate" | "packet">): boolean {
  const [one, other] = [kernel.fate, simulation.fate];
  if (one.kind !== other.kind) return false;
  switch (one.kind) {
    case "dropped":
    case "refused":
      return "by" in other && one.by === other.by;
    case "uncertain":
      return true;
    default: {
      const { destination, destinationPort, source, isMasqueraded, original } = simulation.packet;
      const isSourceKnown = !isMasqueraded || source !== original.source;
      return (
        destination === kernel.packet.destination &&
        destinationPort === kernel.packet.destinationPort &&
        (!isSourceKnown || source === kernel.packet.source)
      );
    }
  }
}

/** The longest common part stays; ways have some tens of steps. */
function comparedSteps(kernel: readonly TraceEvent[], simulation: readonly TraceEvent[]): ComparedStep[] {
  const [ours, theirs] = [groupsOf(kernel), groupsOf(simulation)];
  const lengths = commonLengths(ours, theirs);
  const lengthAt = (one: number, other: number): number => lengths[one]?.[other] ?? 0;
  const steps: ComparedStep[] = [];
  const put = (side: ComparedStep["side"], group: StepGroup | undefined): void => {
    for (const event of group?.events ?? []) steps.push({ side, event });
  };
  let [one, other] = [0, 0];
  while (one < ours.length || other < theirs.length) {
    if (one < ours.length && ours[one]?.key === theirs[other]?.key) {
      put("both", theirs[other]);
      one += 1;
      other += 1;
    } else if (one < ours.length && (other >= theirs.length || lengthAt(one + 1, other) >= lengthAt(one, other + 1))) {
      put("kernel", ours[one]);
      one += 1;
    } else {
      put("simulation", theirs[other]);
      other += 1;
    }
  }
  return steps;
}

/** Length of the longest common part of what follows, for each pair of places. */
function commonLengths(ours: readonly StepGroup[], theirs: readonly StepGroup[]): number[][] {
  const lengths = Array.from({ length: ours.length + 1 }, () => new Array<number>(theirs.length + 1).fill(0));
  for (let one = ours.length - 1; one >= 0; one -= 1) {
    const [row = [], next = []] = [lengths[one], lengths[one + 1]];
    for (let other = theirs.length - 1; other >= 0; other -= 1) {
      row[other] =
        ours[one]?.key === theirs[other]?.key
          ? (next[other + 1] ?? 0) + 1
          : Math.max(next[other] ?? 0, row[other + 1] ?? 0);
    }
  }
  return lengths;
}
