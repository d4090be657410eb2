/**
 * The work of the next sync, as a value: taken when a sync starts, handed back when it fails. Requests during a sync are for the
 * next one, so that nothing gets lost between the two. Pure.
 */
import { someOf } from "../logging/some-of.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { SyncFailure } from "./backend.ts";

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
  /** Keys of refused service ports whose old rules still make flows that the two above are about. */
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

/** Without a copy where one side is empty: a first sync brings the ports of a whole cluster. */
export function union(first: ReadonlySet<string>, second: ReadonlySet<string>): ReadonlySet<string> {
  if (first.size === 0) return second;
  if (second.size === 0) return first;
  return new Set([...first, ...second]);
}

/** How many refused parts the error of their sync names. */
const NAMED_FAILURES = 10;

/**
 * What a failed sync hands on. The backend remembers what was refused, and tries it again with every sync; flows that the old
 * rules still make are looked for when the new ones are in. When nothing is known of the kernel, all must be written.
 */
export function leftBy(
  error: unknown,
  work: PendingWork,
  services: Pick<ReadonlyMap<string, unknown>, "has">,
): PendingWork {
  if (!(error instanceof IncompleteSyncError)) return { ...work, isFull: true };
  const { subjects } = error;
  // What is of no service port, such as the rules of all, may be what makes any flow.
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

/** Whether a service port is among what was refused. @param subjects as failures name them: its text, or its key. */
export function isAmong(subjects: ReadonlySet<string>, key: string): boolean {
  return subjects.has(key) || subjects.has(key.slice(0, key.lastIndexOf("/")));
}

/** A sync that programmed everything but these parts; the message names the first of them. */
export class IncompleteSyncError extends Error {
  override readonly name = "IncompleteSyncError";
  readonly subjects: ReadonlySet<string>;
  constructor(failures: readonly SyncFailure[]) {
    const parts = failures.map(({ subject, reason }) => `${subject} (${reason})`);
    super(`the kernel refused a part of the rules: ${someOf(parts, NAMED_FAILURES)}`);
    this.subjects = new Set(failures.map(({ subject }) => subject));
  }
}

/**
 * Whether a node with these failures is of use to clients. Another node refuses a bad service port, too: taking this one out of load
 * balancers, or restarting the program, helps no one while others are served.
 */
export function isServing(failures: readonly SyncFailure[], services: ReadonlyMap<string, ServicePort>): boolean {
  if (failures.some(({ concernsAll }) => concernsAll)) return false;
  if (failures.length === 0 || services.size === 0) return true;
  const refused = new Set(failures.map(({ subject }) => subject));
  // Ends at the first that is served: there may be tens of thousands.
  for (const { name } of services.values()) if (!refused.has(name.text)) return true;
  return false;
}
