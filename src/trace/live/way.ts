/** One way of a packet, without forks: as the kernel reported it, or one branch of a simulation. Pure. */
import type { Fate, Outcome, TraceEnd, TraceEvent, TraceNode } from "../netfilter/tree.ts";
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

/**
 * Keys of a way's steps, one event at a time. A base chain in which nothing happens is no step: listings of iptables have such
 * chains that the kernel has not. What one rule does is one step, however many events say it.
 */
interface StepKeys {
  /** A base chain in which nothing has happened so far. */
  readonly base: string | undefined;
  readonly last: string | undefined;
}

const NO_STEPS: StepKeys = { base: undefined, last: undefined };

/** @returns the keys that the event adds, none, one or two, and where that leads. Pure. */
function nextKeys(event: TraceEvent, { base, last }: StepKeys): readonly [keys: readonly string[], next: StepKeys] {
  const key = stepKey(event);
  if (key === undefined || key === last) return [[], { base, last }];
  if (event.kind === "base-chain") return [[], { base: key, last }];
  const isInChain = event.kind !== "stage" && base !== undefined;
  return [isInChain ? [base, key] : [key], { base: undefined, last: key }];
}

interface Link {
  readonly node: TraceNode;
  readonly before: Link | undefined;
  readonly odds: number;
  readonly assumption: string | undefined;
}

interface Candidate {
  readonly link: Link;
  /** How many steps agree. */
  readonly agreed: number;
  readonly state: StepKeys;
}

/**
 * The way through a simulation that agrees longest with what was observed.
 *
 * @param keys of the observed way ({@link keysOf}).
 * @param isAlike whether an end is the observed one: decides where several ways agree as long.
 */
export function nearestWay(
  root: TraceNode,
  keys: readonly string[],
  isAlike: (end: TraceEnd & { kind: "end" }) => boolean,
): SimulatedWay {
  let best: { readonly link: Link; readonly score: number } | undefined;
  const offer = (link: Link, score: number): void => {
    if (best === undefined || score > best.score) best = { link, score };
  };
  const start: Link = { node: root, before: undefined, odds: 1, assumption: undefined };
  const open: Candidate[] = [{ link: start, agreed: 0, state: NO_STEPS }];
  for (let candidate = open.pop(); candidate !== undefined; candidate = open.pop()) {
    const { link } = candidate;
    const { agreed, state, isAgreeing } = agreement(link.node, candidate, keys);
    const { end } = link.node;
    if (!isAgreeing) offer(link, agreed);
    else if (end.kind === "end") offer(link, agreed + (agreed === keys.length ? 0.5 : 0) + (isAlike(end) ? 0.25 : 0));
    else {
      for (const branch of end.branches.toReversed()) {
        open.push({ link: linkTo(branch, link), agreed, state });
      }
    }
  }
  return wayOf(best?.link ?? start);
}

function agreement(node: TraceNode, candidate: Candidate, keys: readonly string[]) {
  let { agreed, state } = candidate;
  for (const event of node.events) {
    const [added, next] = nextKeys(event, state);
    state = next;
    for (const key of added) {
      if (key !== keys[agreed]) return { agreed, state, isAgreeing: false };
      agreed += 1;
    }
  }
  return { agreed, state, isAgreeing: true };
}

/** The keys of a whole way. Pure. */
export function keysOf(events: readonly TraceEvent[]): readonly string[] {
  let state = NO_STEPS;
  return events.flatMap((event) => {
    const [keys, next] = nextKeys(event, state);
    state = next;
    return keys;
  });
}

function linkTo(
  { odds, label, node }: { readonly odds: number | undefined; readonly label: string; readonly node: TraceNode },
  before: Link,
): Link {
  return { node, before, odds: odds ?? 1, assumption: odds === undefined ? label : undefined };
}

/** All that leads to a node, and from there the first branches to an end. */
function wayOf(found: Link): SimulatedWay {
  let last = found;
  for (let { end } = last.node; end.kind === "fork"; end = last.node.end) {
    const [first] = end.branches;
    if (first === undefined) break;
    last = linkTo(first, last);
  }
  const links: Link[] = [];
  for (let link: Link | undefined = last; link !== undefined; link = link.before) links.unshift(link);
  const { end } = last.node;
  if (end.kind !== "end") throw new TypeError("a fork without branches");
  return {
    events: links.flatMap(({ node }) => node.events),
    fate: end.fate,
    packet: end.packet,
    odds: links.reduce((product, { odds }) => product * odds, 1),
    assumptions: links.flatMap(({ assumption }) => assumption ?? []),
  };
}

/** A step with the remarks that belong to it. */
export interface StepGroup {
  readonly key: string;
  readonly events: readonly TraceEvent[];
}

/** A way's events by the steps that they are compared by. Pure. */
export function groupsOf(events: readonly TraceEvent[]): readonly StepGroup[] {
  const groups: { readonly key: string; readonly events: TraceEvent[] }[] = [];
  let state = NO_STEPS;
  let base: { readonly event: TraceEvent; readonly group: TraceEvent[] } | undefined;
  for (const event of events) {
    const [keys, next] = nextKeys(event, state);
    state = next;
    for (const key of keys.slice(0, -1)) {
      // The base chain becomes a step after all.
      base?.group.pop();
      groups.push({ key, events: base === undefined ? [] : [base.event] });
    }
    const [key] = keys.slice(-1);
    const last = groups.at(-1);
    if (key !== undefined || last === undefined) groups.push({ key: key ?? "", events: [event] });
    else last.events.push(event);
    if (event.kind === "base-chain") base = { event, group: groups.at(-1)?.events ?? [] };
  }
  return groups;
}
