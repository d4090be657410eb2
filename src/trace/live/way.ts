/** One way of a packet, without forks: as the kernel reported it, or one branch of a simulation. Pure. */
import type { Fate, Outcome, TraceEvent, TraceNode } from "../netfilter/tree.ts";
import type { Packet } from "../packet.ts";

/** Events in order, and what became of the packet. */
export interface Way {
  readonly events: readonly TraceEvent[];
  readonly fate: Fate;
  /** As it was in the end. */
  readonly packet: Packet;
}

/** A way of a simulation. */
export interface SimulatedWay extends Way, Pick<Outcome, "odds" | "assumptions"> {}

/** What a step is compared by; undefined for steps of which the kernel tells nothing. */
function stepKey(event: TraceEvent): string | undefined {
  switch (event.kind) {
    case "stage":
      return `stage ${event.stage}`;
    case "base-chain":
      return `base ${event.chain.table} ${event.chain.chain.name}`;
    case "match":
      return `rule ${event.chain} ${event.index}`;
    case "policy":
      return `policy ${event.chain.table} ${event.chain.chain.name}`;
    default:
      return undefined;
  }
}

/** A step with the remarks that belong to it. */
interface StepGroup {
  readonly key: string;
  readonly events: readonly TraceEvent[];
}

/**
 * A way's events by the steps that they are compared by; what comes before the first of them is one without a key. A base chain in
 * which nothing happens is no step: listings of iptables have such chains that the kernel has not. What one rule does is one step,
 * however many events say it. Pure.
 */
export function groupsOf(events: readonly TraceEvent[]): readonly StepGroup[] {
  let last: { readonly key: string; readonly events: TraceEvent[] } = { key: "", events: [] };
  const groups = [last];
  /** A base chain in which nothing has happened so far. */
  let base: typeof last | undefined;
  for (const event of events) {
    const key = stepKey(event);
    if (key === undefined || key === last.key) {
      (base ?? last).events.push(event);
      continue;
    }
    if (base !== undefined && (event.kind === "match" || event.kind === "policy")) groups.push(base);
    else last.events.push(...(base?.events ?? []));
    base = undefined;
    const group = { key, events: [event] };
    if (event.kind === "base-chain") base = group;
    else {
      last = group;
      groups.push(last);
    }
  }
  last.events.push(...(base?.events ?? []));
  return groups;
}

/** All ways through a simulation, in its order. */
function* waysOf(root: TraceNode): Generator<SimulatedWay> {
  const open = [{ node: root, events: root.events, odds: 1, assumptions: [] as readonly string[] }];
  for (let way = open.pop(); way !== undefined; way = open.pop()) {
    const { node, events, ...chance } = way;
    const { end } = node;
    if (end.kind === "end") yield { ...chance, events, fate: end.fate, packet: end.packet };
    else {
      for (const { odds, label, node: next } of end.branches.toReversed()) {
        open.push({
          node: next,
          events: [...events, ...next.events],
          odds: way.odds * (odds ?? 1),
          assumptions: odds === undefined ? [...way.assumptions, label] : way.assumptions,
        });
      }
    }
  }
}

/**
 * The way through a simulation that agrees longest with what was observed.
 *
 * @param isAlike whether an end is the observed one: decides where several ways agree as long.
 */
export function nearestWay(
  root: TraceNode,
  observed: readonly TraceEvent[],
  isAlike: (end: Pick<Way, "fate" | "packet">) => boolean,
): SimulatedWay {
  const wanted = groupsOf(observed);
  let best: { readonly way: SimulatedWay; readonly score: number } | undefined;
  for (const way of waysOf(root)) {
    const found = groupsOf(way.events);
    const differing = found.findIndex(({ key }, index) => key !== wanted[index]?.key);
    const isWhole = found.length === wanted.length;
    const score = differing < 0 ? found.length + (isWhole ? 0.5 : 0) + (isAlike(way) ? 0.25 : 0) : differing;
    if (best === undefined || score > best.score) best = { way, score };
  }
  if (best === undefined) throw new TypeError("a fork without branches");
  return best.way;
}
