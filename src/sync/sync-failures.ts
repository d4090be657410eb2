/** What the parts that a kernel refused mean for the sync as a whole. */
import type { ServicePort } from "../model/service-port.ts";
import type { SyncFailure } from "./backend.ts";

/** So many refused parts are named in the error of their sync. */
const NAMED_FAILURES = 10;

/** A sync that programmed everything but these parts; the message names the first of them. */
export class IncompleteSyncError extends Error {
  override readonly name = "IncompleteSyncError";
  constructor(failures: readonly SyncFailure[]) {
    const named = failures.slice(0, NAMED_FAILURES).map(({ subject, reason }) => `${subject} (${reason})`);
    const left = failures.length - named.length;
    const others = left === 0 ? "" : ` and ${left} more`;
    super(`the kernel refused a part of the rules: ${named.join(", ")}${others}`);
  }
}

/**
 * Whether a node with these failures is of use to clients. Another node refuses a bad service port, too: taking this one out of load
 * balancers, or restarting the program, helps no one while others are served. Pure.
 */
export function isServing(failures: readonly SyncFailure[], services: ReadonlyMap<string, ServicePort>): boolean {
  if (failures.some(({ concernsAll }) => concernsAll)) return false;
  if (failures.length === 0 || services.size === 0) return true;
  const refused = new Set(failures.map(({ subject }) => subject));
  // Ends at the first that is served: there may be tens of thousands.
  for (const { name } of services.values()) if (!refused.has(name.text)) return true;
  return false;
}

/** The services, as `namespace/name`, that have a refused part. Pure. */
export function refusedServices(failures: readonly SyncFailure[]): ReadonlySet<string> {
  const services = new Set<string>();
  for (const { subject } of failures) {
    const colon = subject.indexOf(":");
    services.add(colon < 0 ? subject : subject.slice(0, colon));
  }
  return services;
}
