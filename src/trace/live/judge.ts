/** Compares a traced packet with a simulation of the same packet over the same rules. */
import { diff } from "node:util";
import type { NodeFacts } from "../facts.ts";
import { actingPriority } from "../netfilter/calling-order.ts";
import { type BaseChain, HOOKS, type Program } from "../netfilter/program.ts";
import { type RecordedOutcome, TooManyWaysError, type TraceEvent } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import type { ObservedPacket } from "./observed.ts";
import { type ObservedFlow, type ObservedWay, observedWay, type RulePlaces } from "./observed-way.ts";
import { groupsOf, nearestWay, type Way } from "./way.ts";

/** What a live trace says about one packet. */
export interface JudgedPacket {
  readonly kernel: ObservedWay;
  /** Undefined if the simulation has too many ways to compare. */
  readonly simulation: RecordedOutcome | undefined;
  readonly comparison: Comparison | undefined;
}

/** The rules that the packet met, and facts about the node. */
interface LiveRules {
  readonly program: Program;
  readonly facts: NodeFacts;
  readonly places: RulePlaces;
}

/** @returns undefined if the packet's headers cannot be read. */
export function judge(packet: ObservedPacket, flow: ObservedFlow, rules: LiveRules): JudgedPacket | undefined {
  const { program, facts, places } = rules;
  const kernel = observedWay(packet, flow, program, places);
  if (kernel === undefined) return undefined;
  try {
    const root = walk(inOrderOf(program, kernel), kernel.first, facts, { isInOrder: true });
    const simulation = nearestWay(root, kernel.events, (end) => isSameEnd(kernel, end));
    return { kernel, simulation, comparison: compareWays(kernel, simulation) };
  } catch (error) {
    if (error instanceof TooManyWaysError) return { kernel, simulation: undefined, comparison: undefined };
    throw error;
  }
}

/** No listing shows in which order the kernel calls chains of equal priority: this takes the order from the trace. */
function inOrderOf(program: Program, { events }: ObservedWay): Program {
  const seen = new Map<BaseChain, number>();
  for (const event of events) {
    if (event.kind === "base-chain" && !seen.has(event.chain)) seen.set(event.chain, seen.size);
  }
  const rank = (chain: BaseChain): number => seen.get(chain) ?? seen.size;
  const ordered = (chains: readonly BaseChain[]): readonly BaseChain[] =>
    chains.toSorted((a, b) => actingPriority(a) - actingPriority(b) || rank(a) - rank(b));
  const entries = HOOKS.map((stage) => [stage, ordered(program[stage])] as const);
  return { ...program, ...Object.fromEntries(entries) };
}

/** A step, and which side has it. */
interface ComparedStep {
  readonly side: "both" | "kernel" | "simulation";
  /** The simulation's event if both have it, as it says more. */
  readonly event: TraceEvent;
}

interface Comparison {
  readonly steps: readonly ComparedStep[];
  readonly hasSameSteps: boolean;
  readonly hasSameEnd: boolean;
}

/** Which steps the kernel and the simulation share, and which only one of them has. */
function compareWays(kernel: Way, simulation: Way): Comparison {
  const steps = comparedSteps(kernel.events, simulation.events);
  return {
    steps,
    hasSameSteps: steps.every(({ side }) => side === "both"),
    hasSameEnd: isSameEnd(kernel, simulation),
  };
}

/** Whether the packet has the same fate. The simulation may not know the address of a masqueraded source. */
function isSameEnd(kernel: Pick<Way, "fate" | "packet">, simulation: Pick<Way, "fate" | "packet">): boolean {
  const [one, other] = [kernel.fate, simulation.fate];
  if (one.kind !== other.kind) return false;
  if (one.kind === "uncertain") return true;
  if ("by" in one) return "by" in other && one.by === other.by;
  const { destination, destinationPort, source, isSourceKnown } = simulation.packet;
  return (
    destination === kernel.packet.destination &&
    destinationPort === kernel.packet.destinationPort &&
    (!isSourceKnown || source === kernel.packet.source)
  );
}

/** Steps of the longest common subsequence are `both`. */
function comparedSteps(kernel: readonly TraceEvent[], simulation: readonly TraceEvent[]): ComparedStep[] {
  const [ours, theirs] = [groupsOf(kernel), groupsOf(simulation)];
  const keysOf = (groups: typeof ours) => groups.map(({ key }) => key);
  let [one, other] = [0, 0];
  const found = diff(keysOf(ours), keysOf(theirs));
  // `diff` returns nothing for equal lists.
  const sides = found.length > 0 ? found.map(([side]) => side) : ours.map(() => 0);
  return sides.flatMap((of) => {
    const own = of < 0 ? undefined : ours[one++];
    const { events = [] } = (of > 0 ? own : theirs[other++]) ?? {};
    const side = of === 0 ? "both" : of > 0 ? "kernel" : "simulation";
    return events.map((event) => ({ side, event }) as const);
  });
}
