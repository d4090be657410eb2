/**
 * Finds the parts of a change that the kernel refuses, when a refusal may not say which part it is for: a refused group is
 * tried in halves until only offenders are left. Everything else is accepted on the way. Shared by all modes that write
 * many service ports in one transaction.
 */

/** Why a group was refused. */
export interface Refusal<Part, Reason> {
  readonly reason: Reason;
  /** The part that the kernel names, if it does; the group is tried in halves without it. */
  readonly offender?: Part | undefined;
}

interface BisectOptions<Part, Reason> {
  /**
   * Tries a group, which is never empty; a refused one must leave nothing behind. Rejects when leaving out a part cannot
   * help: that ends the search.
   */
  readonly attempt: (group: readonly Part[]) => Promise<Refusal<Part, Reason> | undefined>;
  /** Called for each part that is refused; throwing ends the search. */
  readonly onOffender: (part: Part, reason: Reason) => void;
  /** Asked before each group: when true, the rest is left untried. @default never */
  readonly isGivenUp?: () => boolean;
}

/** @returns the accepted parts, in their order. Groups are tried in that order, too. */
export async function bisect<Part, Reason>(
  parts: readonly Part[],
  options: BisectOptions<Part, Reason>,
): Promise<readonly Part[]> {
  const { attempt, onOffender, isGivenUp = () => false } = options;
  const accepted: Part[] = [];
  const groups: (readonly Part[])[] = [parts];
  for (let group = groups.pop(); group !== undefined; group = groups.pop()) {
    if (group.length === 0) continue;
    if (isGivenUp()) break;
    const refusal = await attempt(group);
    if (refusal === undefined) {
      for (const part of group) accepted.push(part);
      continue;
    }
    const offender = group.length === 1 ? group[0] : refusal.offender;
    if (offender !== undefined) onOffender(offender, refusal.reason);
    const rest = group.filter((part) => part !== offender);
    const middle = Math.floor(rest.length / 2);
    groups.push(rest.slice(middle), rest.slice(0, middle));
  }
  return accepted;
}
