/**
 * The work of the next sync, as a value: taken when a sync starts, handed back if it fails. Requests during a sync go
 * to the next one, so nothing gets lost between the two. And when it is everything.
 */

import type { SyncFailure } from "../../contract/backend.ts";
import { someOf } from "../../logging/some-of.ts";
import { formatMs } from "../../text/duration.ts";

export interface PendingWork {
  /** Everything must be written, changed or not. */
  readonly isFull: boolean;
  /** Keys of service ports whose rules must be written. */
  readonly ports: ReadonlySet<string>;
  /** `namespace/name` of the Services whose health-check ports must be checked. */
  readonly services: ReadonlySet<string>;
  /** Flows may lead to endpoints that no longer serve. */
  readonly staleFlows: boolean;
  /** Frontends that no service port owns any more, and whose flows may remain. */
  readonly goneFrontends: ReadonlySet<string>;
  /** Keys of rejected service ports whose old rules still create the flows of the two fields above. */
  readonly owing: ReadonlySet<string>;
}

export const NO_WORK: PendingWork = {
  isFull: false,
  ports: new Set(),
  services: new Set(),
  staleFlows: false,
  goneFrontends: new Set(),
  owing: new Set(),
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
    owing: union(first.owing, second.owing ?? NO_WORK.owing),
  };
}

/** Does not copy if one side is empty: a first sync brings the ports of a whole cluster. */
export function union(first: ReadonlySet<string>, second: ReadonlySet<string>): ReadonlySet<string> {
  if (first.size === 0) return second;
  if (second.size === 0) return first;
  return new Set([...first, ...second]);
}

/** How many rejected parts the error of a sync names. */
const NAMED_FAILURES = 10;

/**
 * What a failed sync hands on. The backend remembers rejected parts and retries them itself; flows that the old rules
 * still create are looked for once the new rules are in. If the state of the kernel is unknown, everything must be written.
 */
export function leftBy(
  error: unknown,
  work: PendingWork,
  services: Pick<ReadonlyMap<string, unknown>, "has">,
): PendingWork {
  if (!(error instanceof IncompleteSyncError)) return { ...work, isFull: true };
  const { subjects } = error;
  // A failure that belongs to no service port, such as one of all rules, may affect any flow.
  const isOfAll = [...subjects].some((subject) => subject.includes(" "));
  if (isOfAll) return { ...NO_WORK, staleFlows: work.staleFlows, goneFrontends: work.goneFrontends, owing: work.owing };
  const owing = [...union(work.owing, work.ports)].filter((key) => !key.endsWith("/TCP") && isAmong(subjects, key));
  return {
    ...NO_WORK,
    staleFlows: work.staleFlows && owing.length > 0,
    goneFrontends: owing.every((key) => services.has(key)) ? NO_WORK.goneFrontends : work.goneFrontends,
    owing: new Set(owing),
  };
}

/** Whether a service port is among those rejected. @param subjects as failures name them: its text, or its key. */
export function isAmong(subjects: ReadonlySet<string>, key: string): boolean {
  return subjects.has(key) || subjects.has(key.slice(0, key.lastIndexOf("/")));
}

/** A sync that programmed everything except these parts; the message names the first of them. */
export class IncompleteSyncError extends Error {
  override readonly name = "IncompleteSyncError";
  readonly subjects: ReadonlySet<string>;
  constructor(failures: readonly SyncFailure[]) {
    const parts = failures.map(({ subject, reason }) => `${subject} (${reason})`);
    super(`the kernel refused a part of the rules: ${someOf(parts, NAMED_FAILURES)}`);
    this.subjects = new Set(failures.map(({ subject }) => subject));
  }
}

const HOUR_MS = 3_600_000;

/** When everything is compared: after an hour, and ever more rarely while parts stay rejected. */
export class FullSyncs {
  /** The longest time between two. */
  readonly mostMs: number;
  readonly #retryMs: number;
  /** Monotonic. */
  #dueMs = Number.NEGATIVE_INFINITY;
  /** How long the next one waits after one that left rejected parts; 0: the last one left none. */
  #restMs = 0;

  /** @throws RangeError when `minSyncPeriod` is longer than the time between full syncs. */
  constructor(periods: { readonly minMs: number; readonly syncMs: number; readonly fullMs?: number }) {
    const { minMs, syncMs, fullMs = HOUR_MS } = periods;
    this.mostMs = fullMs;
    this.#retryMs = syncMs;
    if (minMs <= fullMs) return;
    const most = `${formatMs(fullMs)}, after which all rules are written in any case`;
    throw new RangeError(`minSyncPeriod is ${formatMs(minMs)}: it must be at most ${most}`);
  }

  isDue(nowMs: number): boolean {
    return nowMs >= this.#dueMs;
  }

  /** Notes that one has ended. The backend itself retries rejected parts: they are no reason to rewrite everything. */
  done(nowMs: number, isComplete: boolean): void {
    const restMs = Math.min(this.#restMs * 2 || this.#retryMs, this.mostMs);
    this.#restMs = isComplete ? 0 : restMs;
    this.#dueMs = nowMs + (isComplete ? this.mostMs : restMs);
  }
}
