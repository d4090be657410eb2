/** The fate of a packet, in a form that lets rules be compared with the specification. */

import { hashedBy } from "../../trace/netfilter/walk-state.ts";

/** Odds by way, such as `to 10.0.0.1:80, masqueraded`. They add up to one. */
export type Fate = ReadonlyMap<string, number>;

/** iptables prints odds with ten digits, and each endpoint of a Service multiplies by one of them (libxt_statistic). */
const PRECISION = 1e-6;
/** With at most this many ways, shares are exact in every mode. */
const EXACT_WAYS = 64;

export const REFUSED = "refused";
export const DROPPED = "dropped";
/** The proxy does not change the packet: it goes to its own destination. */
export const UNTOUCHED = "left alone";

/** The specification says nothing: every fate is allowed. */
export const UNSAID = "not said";

/** {@link UNTOUCHED}, or {@link DROPPED} as an unused cluster IP: the ranges of Services are not known. */
export const RANGE_UNKNOWN = "left alone, unless it is an unused cluster IP";

/** A way to an endpoint. @param end such as `10.0.0.1:80`; undefined: the packet's own destination. */
export function wayTo(end: string | undefined, isMasqueraded: boolean): string {
  if (end === undefined) return isMasqueraded ? `${UNTOUCHED}, masqueraded` : UNTOUCHED;
  return `to ${end}${isMasqueraded ? ", masqueraded" : ""}`;
}

/** The way of a client's first packet, with the fate of its next one. */
export function thenAgain(way: string, next: Fate): string {
  const same = next.size === 1 ? next.get(way) : undefined;
  return same === undefined ? `${way}; the client's next connection: ${fateText(next)}` : `${way}, always`;
}

const BY_HASH = ", by hash ";

/** A way that only clients with certain hashes take. @param hashed a digest of what decides ({@link hashedBy}); none for chance */
export function byHash(way: string, hashed: string | undefined): string {
  return hashed ? `${way}${BY_HASH}${hashed}` : way;
}

/** Joins all hashes that lead the same way. */
export function joined(fate: Fate): Fate {
  const ways = Map.groupBy(fate, ([way]) => way.split(BY_HASH)[0] ?? "");
  if (ways.size === fate.size) return fate;
  return new Map(
    Array.from(ways, ([way, parts]) => {
      const hashes = parts.map(([text]) => text.slice(way.length + BY_HASH.length)).sort();
      const odds = parts.reduce((sum, [, share]) => sum + share, 0);
      return [byHash(way, hashes.length > 1 ? hashedBy("", hashes.join()) : hashes[0]), odds];
    }),
  );
}

/** @param isBySlots whether shares of many ways only need to be nearly equal. */
export function isSameFate(one: Fate, other: Fate, isBySlots = false): boolean {
  if (one.has(UNSAID) || other.has(UNSAID)) return true;
  if ([one, other].some((fate) => fate.has(RANGE_UNKNOWN)) && [one, other].some((fate) => fate.get(UNTOUCHED) === 1))
    return true;
  if (one.size !== other.size) return false;
  const allowed = isBySlots && one.size > EXACT_WAYS ? 1 / (8 * one.size) : PRECISION;
  for (const [way, odds] of one) {
    if (Math.abs(odds - (other.get(way) ?? Number.NaN)) < allowed) continue;
    return false;
  }
  return true;
}

export function fateText(fate: Fate): string {
  const ways = [...fate].sort(([a], [b]) => (a < b ? -1 : 1));
  return ways.map(([way, odds]) => (fate.size === 1 ? way : `${Number((odds * 100).toFixed(2))} % ${way}`)).join("; ");
}

/** What clients notice if their packets have another fate than they should. */
export function noticed(wanted: Fate, found: Fate): string {
  const [ends, others] = [endsOf(wanted), endsOf(found)];
  if (ends.size > 0 && others.size === 0) return LOSS[[...found.keys()][0] ?? ""] ?? "no client reaches an endpoint";
  if (ends.size === 0 && others.size > 0) return `clients reach ${[...others.keys()].join(", ")}, and should not`;
  if (ends.size === 0) return `their packets should be ${[...wanted.keys()][0]}, and are ${[...found.keys()][0]}`;
  const [missing, extra] = [without(ends, others), without(others, ends)];
  const words: string[] = [];
  if (missing.length > 0) words.push(`no client reaches ${missing.join(", ")}`);
  if (extra.length > 0) words.push(`some clients reach ${extra.join(", ")}, and none should`);
  if (words.length > 0) return words.join("; ");
  const [seen, seenOther] = [masqueradedIn(wanted), masqueradedIn(found)];
  if (seen < seenOther - PRECISION) return "endpoints see an address of the node in place of the client's own";
  if (seen > seenOther + PRECISION) return "endpoints see the client's own address: their answers may bypass this node";
  const isShare = [...ends].some(([end, odds]) => Math.abs(odds - (others.get(end) ?? 0)) >= PRECISION);
  if (isShare) return "endpoints get other shares of the connections";
  return [...wanted.keys(), ...found.keys()].some((way) => way.includes(BY_HASH))
    ? "a client reaches another endpoint than through other nodes"
    : "a client's next connection goes to another endpoint";
}

const LOSS: Readonly<Record<string, string>> = {
  [REFUSED]: "connections are refused",
  [DROPPED]: "connections time out",
  [UNTOUCHED]: "no client reaches an endpoint: packets go on to the address that they were sent to",
};

const END = /^to (\S+?)(?=,? |;|$)/;

function endsOf(fate: Fate): Map<string, number> {
  const ends = new Map<string, number>();
  for (const [way, odds] of fate) {
    const end = END.exec(way)?.[1];
    if (end !== undefined) ends.set(end.replace(/[,;]$/, ""), (ends.get(end) ?? 0) + odds);
  }
  return ends;
}

function without(some: ReadonlyMap<string, number>, others: ReadonlyMap<string, number>): string[] {
  return [...some.keys()].filter((end) => !others.has(end));
}

function masqueradedIn(fate: Fate): number {
  return [...fate].reduce((sum, [way, odds]) => sum + (/^[^;]*masqueraded/.test(way) ? odds : 0), 0);
}
