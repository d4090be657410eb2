/** A traced packet beside the simulation of the same packet over the same rules. */
import type { NodeFacts } from "../facts.ts";
import { type BaseChain, HOOKS, type Program } from "../netfilter/program.ts";
import { TooManyWaysError } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { type Comparison, compareWays, isSameEnd } from "./compare.ts";
import type { ObservedPacket } from "./observed.ts";
import { type ObservedFlow, type ObservedWay, observedWay, type RulePlaces } from "./observed-way.ts";
import { keysOf, nearestWay, type SimulatedWay } from "./way.ts";

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
    const simulation = nearestWay(root, keysOf(kernel.events), (end) => isSameEnd(kernel, end));
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
