/** What becomes of a packet, in a form in which rules and specification can be compared. Pure. */

/** One way, such as `to 10.0.0.1:80, masqueraded`, and its odds. All odds of a fate add up to one. */
export type Fate = ReadonlyMap<string, number>;

/** iptables spells odds with ten digits, of which each endpoint of a Service multiplies one (libxt_statistic). */
const PRECISION = 1e-6;

export const REFUSED = "refused";
export const DROPPED = "dropped";
/** The proxy leaves the packet alone: it goes where it was sent. */
export const UNTOUCHED = "left alone";

/** A way to an endpoint. @param end `10.0.0.1:80`; undefined: where it was sent. */
export function wayTo(end: string | undefined, isMasqueraded: boolean): string {
  if (end === undefined) return isMasqueraded ? `${UNTOUCHED}, masqueraded` : UNTOUCHED;
  return `to ${end}${isMasqueraded ? ", masqueraded" : ""}`;
}

/** A way of a first packet, and what becomes of the next one of the same client. */
export function thenAgain(way: string, next: Fate): string {
  const same = next.size === 1 ? next.get(way) : undefined;
  return same === undefined ? `${way}; the client's next connection: ${fateText(next)}` : `${way}, always`;
}

export function isSameFate(one: Fate, other: Fate): boolean {
  if (one.size !== other.size) return false;
  for (const [way, odds] of one) {
    if (Math.abs(odds - (other.get(way) ?? Number.NaN)) < PRECISION) continue;
    return false;
  }
  return true;
}

export function fateText(fate: Fate): string {
  const ways = [...fate].sort(([a], [b]) => (a < b ? -1 : 1));
  return ways.map(([way, odds]) => (fate.size === 1 ? way : `${shareText(odds)} ${way}`)).join("; ");
}

function shareText(odds: number): string {
  return `${Number((odds * 100).toFixed(2))} %`;
}
