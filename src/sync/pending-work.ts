/**
 * What the next sync owes, as a value: taken when a sync starts, handed back when it fails. What is asked for while a sync
 * runs is the next one's, so that nothing gets lost between the two. Pure.
 */

export interface PendingWork {
  /** Everything must be written, changed or not. */
  readonly isFull: boolean;
  /** Keys of service ports whose rules must be written. */
  readonly ports: ReadonlySet<string>;
  /** `namespace/name` of the Services whose health-check ports must be looked at. */
  readonly services: ReadonlySet<string>;
  /** UDP flows may lead to endpoints that no longer serve. */
  readonly staleFlows: boolean;
  /** UDP frontends that service ports do not own any more, and whose flows may still be there. */
  readonly goneUdp: ReadonlySet<string>;
}

export const NO_WORK: PendingWork = {
  isFull: false,
  ports: new Set(),
  services: new Set(),
  staleFlows: false,
  goneUdp: new Set(),
};

export const FULL_SYNC: PendingWork = { ...NO_WORK, isFull: true };

/** Both together; the ports of `first` come first. */
export function merged(first: PendingWork, second: Partial<PendingWork>): PendingWork {
  return {
    isFull: first.isFull || second.isFull === true,
    ports: union(first.ports, second.ports ?? NO_WORK.ports),
    services: union(first.services, second.services ?? NO_WORK.services),
    staleFlows: first.staleFlows || second.staleFlows === true,
    goneUdp: union(first.goneUdp, second.goneUdp ?? NO_WORK.goneUdp),
  };
}

/** Without a copy where one side is empty: a first sync brings the ports of a whole cluster. */
function union(first: ReadonlySet<string>, second: ReadonlySet<string>): ReadonlySet<string> {
  if (first.size === 0) return second;
  if (second.size === 0) return first;
  return new Set([...first, ...second]);
}
