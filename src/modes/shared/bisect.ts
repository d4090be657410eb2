/**
 * Finds the parts of a change that the kernel rejects when its error may not name the part: a rejected group is tried
 * in halves until only the offenders are left; everything else is accepted on the way. Shared by all modes that write
 * many service ports in one transaction.
 */

/** Why a group was rejected. */
export interface Refusal<Part, Reason> {
  readonly reason: Reason;
  /** The part that the kernel named, if any; the rest of the group is tried in halves. */
  readonly offender?: Part | undefined;
}

interface BisectOptions<Part, Reason> {
  /**
   * Tries a group, which is never empty; a rejected group must leave nothing behind. Throws if leaving out a part
   * cannot help, which ends the search.
   */
  readonly attempt: (group: readonly Part[]) => Promise<Refusal<Part, Reason> | undefined>;
  /** Called for each rejected part; throwing ends the search. */
  readonly onOffender: (part: Part, reason: Reason) => void;
  /** Called before each group: if true, the rest is not tried. @default never */
  readonly isGivenUp?: () => boolean;
}

/** Tries the parts in order. @returns the accepted ones, in the same order. */
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
