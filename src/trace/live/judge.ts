/** A traced packet beside the simulation of the same packet over the same rules. */
import type { NodeFacts } from "../facts.ts";
import { type BaseChain, HOOKS, type Program } from "../netfilter/program.ts";
import { TooManyWaysError, type TraceEvent } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import type { ObservedPacket } from "./observed.ts";
import { type ObservedFlow, type ObservedWay, observedWay, type RulePlaces } from "./observed-way.ts";
import { groupsOf, nearestWay, type SimulatedWay, type StepGroup, type Way } from "./way.ts";

/** What a live trace says of one packet. */
export interface JudgedPacket {
  readonly kernel: ObservedWay;
  /** Undefined where the simulation has too many ways to compare. */
  readonly simulation: SimulatedWay | undefined;
  readonly comparison: Comparison | undefined;
}

/** The rules that the packet met, and what is known of the node. */
interface LiveRules {
  readonly program: Program;
  readonly facts: NodeFacts;
  readonly places: RulePlaces;
}

/** Undefined when the packet's headers cannot be read. Pure. */
export function judge(packet: ObservedPacket, flow: ObservedFlow, rules: LiveRules): JudgedPacket | undefined {
  const { program, facts, places } = rules;
  const kernel = observedWay(packet, flow, program, places);
  if (kernel === undefined) return undefined;
  try {
    const root = walk(inOrderOf(program, kernel), kernel.first, facts);
    const simulation = nearestWay(root, kernel.events, (end) => isSameEnd(kernel, end));
    return { kernel, simulation, comparison: compareWays(kernel, simulation) };
  } catch (error) {
    if (error instanceof TooManyWaysError) return { kernel, simulation: undefined, comparison: undefined };
    throw error;
  }
}

/** Chains of one priority are called in an order that no listing shows: that of the kernel is taken over. */
function inOrderOf(program: Program, { events }: ObservedWay): Program {
  const seen = new Map<BaseChain, number>();
  for (const event of events) {
    if (event.kind === "base-chain" && !seen.has(event.chain)) seen.set(event.chain, seen.size);
  }
  const rank = (chain: BaseChain): number => seen.get(chain) ?? seen.size;
  const ordered = (chains: readonly BaseChain[]): readonly BaseChain[] =>
    chains.toSorted((a, b) => a.priority - b.priority || rank(a) - rank(b));
  const entries = HOOKS.map((stage) => [stage, ordered(program[stage])] as const);
  return { ...program, ...Object.fromEntries(entries) };
}

/** A step, and who has it. */
interface ComparedStep {
  readonly side: "both" | "kernel" | "simulation";
  /** The simulation's where both have it: it says more. */
  readonly event: TraceEvent;
}

interface Comparison {
  readonly steps: readonly ComparedStep[];
  readonly hasSameSteps: boolean;
  readonly hasSameEnd: boolean;
}

/** What the kernel did beside what the simulation says: which steps both have, and which only one of them. */
function compareWays(kernel: Way, simulation: Way): Comparison {
  const steps = comparedSteps(kernel.events, simulation.events);
  return {
    steps,
    hasSameSteps: steps.every(({ side }) => side === "both"),
    hasSameEnd: isSameEnd(kernel, simulation),
  };
}

/** Whether the same became of the packet. Of a masqueraded source, the simulation may not know the address. */
function isSameEnd(kernel: Pick<Way, "fate" | "packet">, simulation: Pick<Way, "fate" | "packet">): boolean {
  const [one, other] = [kernel.fate, simulation.fate];
  if (one.kind !== other.kind) return false;
  switch (one.kind) {
    case "dropped":
    case "refused":
      return "by" in other && one.by === other.by;
    case "uncertain":
      return true;
    default: {
      const { destination, destinationPort, source, isSourceKnown } = simulation.packet;
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
