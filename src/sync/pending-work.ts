/**
 * The work of the next sync, as a value: taken when a sync starts, handed back when it fails. Requests during a sync are for the
 * next one, so that nothing gets lost between the two. Pure.
 */

export interface PendingWork {
  /** Everything must be written, changed or not. */
  readonly isFull: boolean;
  /** Keys of service ports whose rules must be written. */
  readonly ports: ReadonlySet<string>;
  /** `namespace/name` of the Services whose health-check ports must be looked at. */
  readonly services: ReadonlySet<string>;
  /** Flows may lead to endpoints that no longer serve. */
  readonly staleFlows: boolean;
  /** Frontends that service ports do not own any more, and whose flows may still be there. */
  readonly goneFrontends: ReadonlySet<string>;
}

export const NO_WORK: PendingWork = {
  isFull: false,
  ports: new Set(),
  services: new Set(),
  staleFlows: false,
  goneFrontends: new Set(),
};

export const FULL_SYNC: PendingWork = { ...NO_WORK, isFull: true };

/** Both together; the ports of `first` come first. */
export function merged(first: PendingWork, second: Partial<PendingWork>): PendingWork {
  return {
    isFull: first.isFull || second.isFull === true,
    ports: union(first.ports, second.ports ?? NO_WORK.ports),
    services: union(first.services, second.services ?? NO_WORK.services),
    staleFlows: first.staleFlows || second.staleFlows === true,
    goneFrontends: union(first.goneFrontends, second.goneFrontends ?? NO_WORK.goneFrontends),
  };
}

/** Without a copy where one side is empty: a first sync brings the ports of a whole cluster. */
export function union(first: ReadonlySet<string>, second: ReadonlySet<string>): ReadonlySet<string> {
  if (first.size === 0) return second;
  if (second.size === 0) return first;
  return new Set([...first, ...second]);
}
