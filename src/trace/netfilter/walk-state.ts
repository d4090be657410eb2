/** The state of a walk through the hooks of a node. */
import { createHash } from "node:crypto";
import type { Packet } from "../packet.ts";
import { type BaseChain, type Chain, type Entry, placeIn, type Rule, type Stage, type StepResult } from "./program.ts";
import type { Fate, TraceEnd, TraceEvent, TraceNode } from "./tree.ts";

/** A position in a chain, and the caller to return to. */
export interface Frame {
  readonly chain: Chain;
  readonly index: number;
  readonly caller: Frame | undefined;
}

/** The state of a walk. */
export interface Walk {
  readonly node: OpenNode;
  packet: Packet;
  stage: Stage;
  base: BaseChain | undefined;
  /** The base chains of this hook that are still to be called. */
  rest: readonly BaseChain[];
  /** How many of them, from the first one on, are called in this order for certain, or in any with the same result. */
  settled: number;
  frame: Frame | undefined;
  /** The step of the rule at which the walk continues. */
  step: number;
  /** The result that a fork has chosen for that step. */
  decided: StepResult | undefined;
  entries: readonly Entry[];
  /** How many rules the packet has met, where a proof counts them. */
  met: number;
  /** Which hashes have decided on this path, and how ({@link hashedBy}). */
  hashed: string;
  /** Questions answered so far on this path. */
  answers: ReadonlyMap<string, boolean>;
}

/** One continuation at a fork, with the state of its walk. */
export interface Branch {
  readonly odds?: number | undefined;
  readonly label: string;
  readonly walk: Walk;
}

export interface OpenNode {
  readonly events: TraceEvent[];
  end: TraceEnd;
}

const NOWHERE: TraceEnd = { kind: "fork", question: undefined, branches: [] };

export function openNode(): OpenNode {
  return { events: [], end: NOWHERE };
}

/** A digest of all that hashes of the client have decided on a path: paths with the same one are those of the same clients. */
export function hashedBy(before: string, by: string | undefined): string {
  if (by === undefined) return before;
  return createHash("sha256").update(`${before}\n${by}`).digest("hex").slice(0, DIGITS);
}

const DIGITS = 12;

/** The walk of a packet before the first base chain of a hook. */
export function startOf(stage: Stage, packet: Packet, answers: ReadonlyMap<string, boolean> = new Map()): Walk {
  const before = { base: undefined, rest: [], settled: 0, frame: undefined, step: 0, decided: undefined };
  return { node: openNode(), packet, stage, ...before, entries: [], met: 0, hashed: "", answers };
}

/** Where the walk is, with the rule there. */
export function placeOf({ base, frame }: Walk, rule: Rule | undefined): string {
  if (frame === undefined) return rule?.text ?? "";
  const { chain, index } = frame;
  const place = chain.isNumbered === false ? "" : ` rule ${placeIn(chain, index) + 1}`;
  return `${base?.table ?? ""} ${chain.name}${place}: ${rule?.text}`;
}

/** A rule whose step does not hold. */
export function missEvent({ chain, index }: Frame, rule: Rule, at: number, packet: Packet): TraceEvent {
  const step = rule.steps[at];
  const place = { chain: chain.name, index: placeIn(chain, index) };
  return { kind: "no-match", ...place, rule, condition: step?.text ?? "", observed: step?.observed?.(packet) };
}

/** Whether the base chain behind which the walk is sent the node's packet to the router again: with this mark (ip_route_me_harder). */
export function isRoutedAgain({ base, packet }: Walk): boolean {
  return base?.reroutes === true || (base?.type === "nat" && packet.isDestinationTranslated);
}

export function endOf({ packet, entries, hashed }: Walk, fate: Fate): TraceNode {
  return { events: [], end: { kind: "end", fate, packet, entries, hashed } };
}
