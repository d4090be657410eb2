/** One path of a packet, without forks: as the kernel reported it, or one branch of a simulation. */
import { outcomesOf, type RecordedOutcome, type TraceEvent, type TraceNode } from "../netfilter/tree.ts";

/** Events in order, the fate of the packet, and the packet at the end. */
export type Way = Pick<RecordedOutcome, "events" | "fate" | "packet">;

/** What identifies a step in a comparison; undefined for steps that the kernel does not report. */
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

/**
 * Groups events by the step they belong to, for comparison; events before the first step get an empty key. A base chain in which
 * nothing happens is not a step: iptables lists such chains even if the kernel does not have them. All events of one rule are one
 * step.
 */
export function groupsOf(events: readonly TraceEvent[]): readonly {
  readonly key: string;
  readonly events: readonly TraceEvent[];
}[] {
  let last: { readonly key: string; readonly events: TraceEvent[] } = { key: "", events: [] };
  const groups = [last];
  /** The current base chain, while nothing has happened in it. */
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

/**
 * The way through a simulation with the longest common start with the observed one.
 *
 * @param isAlike whether an end equals the observed one: breaks ties.
 */
export function nearestWay(
  root: TraceNode,
  observed: readonly TraceEvent[],
  isAlike: (end: Pick<Way, "fate" | "packet">) => boolean,
): RecordedOutcome {
  const wanted = groupsOf(observed);
  let best: { readonly way: RecordedOutcome; readonly score: number } | undefined;
  for (const way of outcomesOf(root, true)) {
    const found = groupsOf(way.events);
    const differing = found.findIndex(({ key }, index) => key !== wanted[index]?.key);
    const isWhole = found.length === wanted.length;
    const score = differing < 0 ? found.length + (isWhole ? 0.5 : 0) + (isAlike(way) ? 0.25 : 0) : differing;
    if (best === undefined || score > best.score) best = { way, score };
  }
  if (best === undefined) throw new TypeError("a fork without branches");
  return best.way;
}
