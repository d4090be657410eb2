/** What becomes of a packet, as one answer: equal ends are added up, and a question that changes nothing is not asked. */
import { EARLIER_CONNECTIONS, outcomesOf, type TraceNode } from "../netfilter/tree.ts";
import { fateText } from "./fate-text.ts";
import { forkOf } from "./flat-fork.ts";

/** An end in words, and what must hold for it. */
interface Way {
  readonly text: string;
  readonly odds: number;
  readonly assumed: readonly string[];
}

/** Ends that are met together. */
export interface FateGroup {
  /** What must hold, in words; empty where nothing must. */
  readonly condition: string;
  /** The same in a line: of many conditions those that always count. */
  readonly brief: string;
  readonly shares: readonly { readonly text: string; readonly odds: number }[];
}

export interface Answer {
  readonly groups: readonly FateGroup[];
  /** Endpoints that may be addresses of the node: a process here has what is sent to them. */
  readonly own: readonly string[];
  /** Where a client goes that session affinity remembers. */
  readonly remembered: readonly string[];
}

/** What is said once, after the ends. */
interface Asides {
  readonly own: Set<string>;
  readonly remembered: Set<string>;
}

/** The answer that a walk gives. */
export function answerOf(root: TraceNode): Answer {
  const asides: Asides = { own: new Set(), remembered: new Set() };
  const ends = Map.groupBy(waysOf(root, asides), ({ text, odds }) => `${shown(odds)} ${text}`);
  const shares = [...ends.values()].flatMap((ways) => {
    const [first] = ways;
    const condition = ways
      .map(({ assumed }) => assumed.join(AND))
      .sort()
      .join(", or if ");
    return first === undefined ? [] : { ...first, condition, brief: brief(condition, ways) };
  });
  const groups = [...Map.groupBy(shares, ({ condition }) => condition)].flatMap(([condition, group]) => {
    const [first] = group;
    return first === undefined ? [] : { condition, brief: first.brief, shares: group.sort(likeliestFirst) };
  });
  return { groups: withOtherwise(groups), own: [...asides.own], remembered: [...asides.remembered] };
}

/** If the groups exclude each other and leave nothing out, the last, or one with much more to say, is what is left. */
function withOtherwise(groups: readonly FateGroup[]): readonly FateGroup[] {
  const isWhole = groups.every(({ shares }) => shown(shares.reduce((sum, { odds }) => sum + odds, 0)) === ODDS_SHOWN);
  if (groups.length < 2 || !isWhole) return groups;
  const last = groups.reduce((longest, group) =>
    longest.condition.length > 1.5 * group.condition.length ? longest : group,
  );
  return [...groups.filter((group) => group !== last), { ...last, condition: OTHERWISE, brief: OTHERWISE }];
}

/** The condition of a last group. */
export const OTHERWISE = "otherwise";
const AND = ", and ";
const BRIEF = 240;

function brief(condition: string, ways: readonly Way[]): string {
  if (condition.length <= BRIEF) return condition;
  const [{ assumed = [] } = {}, ...others] = ways;
  const always = assumed.filter((one) => others.every((way) => way.assumed.includes(one)));
  const named = always.length > 0 ? always : assumed;
  return `${named.slice(0, 2).join(AND)}, and more (--all names it)`;
}

function waysOf({ end }: TraceNode, asides: Asides): readonly Way[] {
  if (end.kind === "end") return [{ text: fateText(end), odds: 1, assumed: [] }];
  const { isRandom, branches: all } = forkOf(end);
  if (isRandom) {
    const ways = all.flatMap(({ odds = 0, node }) =>
      waysOf(node, asides).map((way) => ({ ...way, odds: way.odds * odds })),
    );
    return addedUp(ways);
  }
  const aside = all.find(({ label, node }) => isAside(label, node, asides));
  const rest = all.find((branch) => branch !== aside);
  if (aside !== undefined && rest !== undefined) return waysOf(rest.node, asides);
  const branches = all.map(({ label, node }) => ({ label, ways: keyed(waysOf(node, asides)) }));
  const isAlike = (key: string): boolean => branches.every(({ ways }) => ways.has(key));
  return branches.flatMap(({ label, ways }, at) =>
    [...ways].flatMap(([key, way]) => {
      if (!isAlike(key)) return { ...way, assumed: [inWords(label), ...way.assumed] };
      return at === 0 ? way : [];
    }),
  );
}

/** `it does not leave by eth0` for the label `not: it leaves by eth0`. */
function inWords(label: string): string {
  const [, verb, rest] = /^not: it (is|leaves|comes) (.*)$/.exec(label) ?? [];
  if (verb === "is") return `it is not ${rest}`;
  return verb === undefined ? label : `it does not ${verb.slice(0, -1)} ${rest}`;
}

/** Whether a branch is of an endpoint that would be this node itself, or of a client that affinity remembers. */
function isAside(label: string, node: TraceNode, asides: Asides): boolean {
  const [, own] = /^(\S+) is an address of the node$/.exec(label) ?? [];
  const isOfClient = /^(?!not: ).*( is in the list \S+|, which packets fill)$/.test(label);
  for (const { fate, packet } of outcomesOf(node)) {
    const isLed = packet.isDestinationTranslated && (fate.kind === "delivered" || (isOfClient && fate.kind === "sent"));
    const isRemembered = fate.kind === "uncertain" && fate.because.endsWith(EARLIER_CONNECTIONS);
    if (own === undefined ? !(isLed && isOfClient) && !isRemembered : !isLed) return false;
  }
  if (own !== undefined) asides.own.add(own);
  else for (const outcome of outcomesOf(node)) asides.remembered.add(fateText(outcome));
  return true;
}

function addedUp(ways: readonly Way[]): readonly Way[] {
  return [...Map.groupBy(ways, ({ text, assumed }) => JSON.stringify([text, assumed])).values()].flatMap((same) => {
    const [first] = same;
    return first === undefined ? [] : { ...first, odds: same.reduce((sum, { odds }) => sum + odds, 0) };
  });
}

function keyed(ways: readonly Way[]): ReadonlyMap<string, Way> {
  return new Map(ways.map((way) => [JSON.stringify([way.text, way.assumed, shown(way.odds)]), way]));
}

/** Odds that print the same count as equal: iptables' odds are products of rounded ones. */
const ODDS_SHOWN = 1000;
const shown = (odds: number): number => Math.round(odds * ODDS_SHOWN);
const { compare } = new Intl.Collator("en", { numeric: true });

/** Equal shares stand by address: the order of slots tells a reader nothing. */
function likeliestFirst(left: Omit<Way, "assumed">, right: Omit<Way, "assumed">): number {
  return shown(right.odds) - shown(left.odds) || compare(left.text, right.text);
}
